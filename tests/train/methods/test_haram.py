"""ML-ARAM against loops written from its description, and against scikit-multilearn-ng."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy import sparse

from export.to_onnx import export_predictor
from export.verify import check_parity
from train.batches import DenseRows
from train.methods import haram


def with_few_label_sets(problem, *, binary: bool = False):
    """The same problem with two labels, so that rows share label sets, perhaps with 0/1 inputs."""

    def part_of(part):
        rows = torch.arange(len(part))
        x, y = part.x.take(rows), part.y.take(rows)[:, :2]
        x = (x > 0).float() if binary else x
        return dataclasses.replace(
            part, x=DenseRows(x), y=DenseRows(y), targets=sparse.csr_array(y.numpy())
        )

    shape = dataclasses.replace(problem.shape, n_labels=2)
    parts = {name: part_of(getattr(problem, name)) for name in ("train", "validation", "test")}
    return dataclasses.replace(problem, shape=shape, **parts)


def arrays(part):
    rows = torch.arange(len(part))
    return part.x.take(rows).double().numpy(), part.y.take(rows).numpy().astype(int)


def by_loops(x, y, queries, vigilance, threshold):
    """Scores (queries, labels) in float64, row by row and prototype by prototype."""
    low, high = min(x.min(), 0), max(x.max(), 1)
    x, queries = (x - low) / (high - low), np.clip((queries - low) / (high - low), 0, 1)
    prototypes = prototypes_by_loops(x, y, vigilance)
    scores = []
    for a in queries:
        coded = np.concatenate([a, 1 - a])
        found = [np.minimum(w, coded).sum() / (w.sum() + 1e-13) for w, _, _ in prototypes]
        best, least = max(found), min(found)
        total, weight = np.zeros(y.shape[1]), 0.0
        for activation, (_, labels, n) in zip(found, prototypes, strict=True):
            if (best - activation) / best <= threshold * (best - least):
                total, weight = total + activation * n * labels, weight + activation * n
        scores.append(total / weight)
    return np.array(scores), len(prototypes)


def prototypes_by_loops(x, y, vigilance):
    """[weights, label set, rows] of each prototype."""
    prototypes = []
    for a, labels in zip(x, y, strict=True):
        coded = np.concatenate([a, 1 - a])
        best, best_activation = None, -1.0
        for prototype in prototypes:
            common = sum(min(w, v) for w, v in zip(prototype[0], coded, strict=True))
            activation = common / sum(prototype[0])
            passes = common / sum(coded) > vigilance and list(prototype[1]) == list(labels)
            if passes and activation > best_activation:
                best, best_activation = prototype, activation
        if best is None:
            prototypes.append([coded, labels, 1])
        else:
            best[0], best[2] = np.minimum(best[0], coded), best[2] + 1
    return prototypes


@pytest.mark.parametrize("binary", [False, True], ids=["real", "binary"])
@pytest.mark.parametrize(("vigilance", "threshold"), [(0.9, 0.02), (0.7, 0.3), (0.5, 0.9)])
def test_scores_are_those_of_the_description(vigilance, threshold, binary, dense_problem):
    problem = with_few_label_sets(dense_problem, binary=binary)
    network = haram.fit(haram.Config(vigilance=vigilance, threshold=threshold), problem)
    expected, count = by_loops(
        *arrays(problem.train), arrays(problem.test)[0], vigilance, threshold
    )
    assert len(network.weights) == count
    assert (network.weights.dtype == torch.uint8) == binary
    scores = network(problem.test.x.take(torch.arange(16))).sigmoid().numpy()
    np.testing.assert_allclose(scores, expected, atol=1e-5)


# It asks numpy for things by an old name.
@pytest.mark.filterwarnings("ignore:numpy.core:DeprecationWarning")
@pytest.mark.parametrize("vigilance", [0.9, 0.6])
def test_ranks_as_scikit_multilearn(vigilance, dense_problem):
    from skmultilearn.adapt import MLARAM

    problem = with_few_label_sets(dense_problem)
    x, y = arrays(problem.train)
    theirs = MLARAM(vigilance=vigilance, threshold=0.3)
    theirs.fit(x, y.copy())  # it counts in the array it is given
    network = haram.fit(haram.Config(vigilance=vigilance, threshold=0.3), problem)
    assert len(network.weights) == len(theirs.neurons)
    # It scales new rows by their own range, so ask about the training rows.
    expected = theirs.predict_proba(x)
    scores = network(torch.from_numpy(x).float()).sigmoid().double().numpy()
    has_votes = expected.max(1) > 0
    assert has_votes.sum() > 20
    shares = expected[has_votes] / expected[has_votes].max(1, keepdims=True)
    ours = scores[has_votes] / scores[has_votes].max(1, keepdims=True)
    np.testing.assert_allclose(ours, shares, atol=1e-4)


def test_the_graph_of_real_prototypes_gives_the_same_answers(dense_problem):
    """In the graph the sums run feature by feature; in torch they are distances."""
    problem = with_few_label_sets(dense_problem)
    network = haram.fit(haram.Config(vigilance=0.6, threshold=0.3), problem)
    x = problem.test.x.take(torch.arange(16)).numpy()
    parity = check_parity(network, export_predictor(network, x.shape[1], 2), x)
    assert parity.largest_difference < 1e-6


def test_rows_beyond_the_training_values_are_clipped(dense_problem):
    network = haram.fit(haram.Config(), dense_problem)
    assert network.scaled(torch.tensor([[-1e6, 1e6]])).tolist() == [[0.0, 1.0]]


def test_a_row_that_shares_nothing_with_any_prototype_gets_no_label(dense_problem):
    network = haram.fit(haram.Config(), dense_problem)
    network.weights = torch.tensor([[0] * 12 + [1] * 12], dtype=torch.uint8)
    network.labels, network.counts = network.labels[1:2], network.counts[1:2]
    network.low, network.span = torch.tensor(0.0), torch.tensor(1.0)
    scores = network(torch.tensor([[1.0] * 12, [0.0] * 12])).sigmoid()
    assert (scores[0] < 1e-5).all()
    assert torch.equal(scores[1] > 0.5, network.labels[0] == 1)
