"""ML-kNN against loops written from the paper, and against scikit-multilearn-ng."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy import sparse

from export.to_onnx import export_predictor
from export.verify import check_parity
from train.batches import DenseRows
from train.errors import ConfigError, DataError
from train.methods import mlknn
from train.nets import stored
from train.nets.neighbours import nearest, squared_distances


def by_loops(x, y, queries, k, s):
    """Logits (queries, labels) from the formulas of the paper, in float64."""
    x, queries = x.astype(np.float64), queries.astype(np.float64)
    n, labels = y.shape

    def count(row, label, excluded=None):
        far = [(((row - x[j]) ** 2).sum(), j) for j in range(n) if j != excluded]
        return sum(int(y[j, label]) for _, j in sorted(far)[:k])

    logits = np.empty((len(queries), labels))
    for label in range(labels):
        with_it, without = np.zeros(k + 1), np.zeros(k + 1)
        for i in range(n):
            (with_it if y[i, label] else without)[count(x[i], label, excluded=i)] += 1
        prior = (s + y[:, label].sum()) / (2 * s + n)
        for q, row in enumerate(queries):
            r = count(row, label)
            true = prior * (s + with_it[r]) / (s * (k + 1) + with_it.sum())
            false = (1 - prior) * (s + without[r]) / (s * (k + 1) + without.sum())
            logits[q, label] = np.log(true) - np.log(false)
    return logits


def arrays(problem):
    everything = torch.arange(len(problem.train))
    return (
        problem.train.x.take(everything).numpy(),
        problem.train.y.take(everything).numpy().astype(np.uint8),
        problem.test.x.take(torch.arange(len(problem.test))),
    )


@pytest.mark.parametrize(("k", "s"), [(1, 1.0), (4, 0.3), (10, 1.0), (31, 2.0)])
def test_logits_are_those_of_the_formulas(k, s, problem):
    x, y, queries = arrays(problem)
    predictor = mlknn.fit(mlknn.Config(k=k, smoothing=s), problem)
    expected = by_loops(x, y, queries.numpy(), k, s)
    np.testing.assert_allclose(predictor(queries).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_agrees_with_scikit_multilearn(dense_problem):
    from skmultilearn.adapt import MLkNN

    x, y, queries = arrays(dense_problem)
    theirs = MLkNN(k=5, s=1.0, ignore_first_neighbours=1)
    theirs.fit(x, sparse.lil_matrix(y))
    # Meant for fitting, where the first neighbour is the row itself; it would leave out the
    # nearest training row of a new row too.
    theirs.ignore_first_neighbours = 0
    ours = mlknn.fit(mlknn.Config(k=5), dense_problem)(queries).sigmoid().numpy()
    expected = theirs.predict_proba(queries.numpy()).toarray()
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


def test_equally_near_rows_are_taken_in_their_order():
    points = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]] * 20)
    distances = squared_distances(torch.tensor([[0.0, 0.0], [0.0, 1.0]]), points)
    assert nearest(distances, 6).tolist() == [[0, 1, 3, 4, 5, 6], [1, 3, 6, 8, 11, 13]]


def test_ties_are_broken_alike_in_the_exported_graph():
    """Few distinct rows of zeros and ones, with random labels: nearly every neighbour is a tie."""
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.integers(0, 2, (300, 4)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, 2, (300, 5)).astype(np.uint8))
    predictor = mlknn.NeighbourCounts(rows, labels, 7)
    predictor.logits = torch.linspace(-3, 3, 40).reshape(8, 5)
    model = export_predictor(predictor, 4, 5)
    assert check_parity(predictor, model, rows[:64].numpy()).largest_difference < 1e-6


def test_refuses_more_neighbours_than_there_are_rows(dense_problem):
    with pytest.raises(ConfigError, match=r"--k 32 .* only 31 others"):
        mlknn.fit(mlknn.Config(k=32), dense_problem)


def test_refuses_rows_too_large_to_keep(dense_problem, monkeypatch):
    monkeypatch.setattr(stored, "LARGEST_TABLE", 100)
    with pytest.raises(DataError, match=r"32 of them, dense, .* --fraction"):
        mlknn.fit(mlknn.Config(), dense_problem)


def test_the_order_of_training_rows_does_not_matter(dense_problem):
    _, _, queries = arrays(dense_problem)
    part = dense_problem.train
    backwards = torch.arange(len(part)).flip(0)
    turned = dataclasses.replace(
        part,
        x=DenseRows(part.x.take(backwards)),
        y=DenseRows(part.y.take(backwards)),
        targets=part.targets[::-1],
    )
    one = mlknn.fit(mlknn.Config(), dense_problem)
    other = mlknn.fit(mlknn.Config(), dataclasses.replace(dense_problem, train=turned))
    assert torch.equal(one(queries), other(queries))
