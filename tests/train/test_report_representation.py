from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.metrics import davies_bouldin_score, silhouette_score

from train.cli import main
from train.report import figures, representation
from train.report.representation import (
    cluster_scores,
    combination_ranks,
    principal_plane,
    pull_table,
    shown_rows,
)
from train.report.runs import load_runs


def drawn(rows=300, size=6, labels=4, seed=0):
    generator = np.random.default_rng(seed)
    targets = sparse.csr_array((generator.random((rows, labels)) < 0.35).astype(np.uint8))
    vectors = targets.toarray() @ generator.normal(size=(labels, size))
    return vectors + 0.8 * generator.normal(size=(rows, size)), targets


def test_combinations_are_ranked_by_their_rows_then_by_their_labels():
    targets = sparse.csr_array(
        np.array([[0, 1, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0], [1, 0, 0]], np.uint8)
    )
    # {1} and {0} have two rows each, {} and {0, 1} one: lower labels first, none before any.
    assert combination_ranks(targets).tolist() == [1, 3, 1, 2, 0, 0]


@pytest.mark.parametrize("block", [7, 256])
def test_scores_are_those_of_scikit_learn(block, monkeypatch):
    monkeypatch.setattr(representation, "BLOCK", block)
    vectors, targets = drawn(labels=6)
    ranks = combination_ranks(targets)
    clusters = cluster_scores(vectors, ranks, (0.25, 0.5, 1.0))
    total = ranks.max() + 1
    assert clusters.share == [0.25, 0.5, 1.0]
    assert clusters.combinations == [math.ceil(share * total) for share in clusters.share]
    assert (np.bincount(ranks) == 1).any()  # one that is alone in its combination
    for place, count in enumerate(clusters.combinations):
        kept = ranks < count
        assert clusters.rows[place] == kept.sum()
        for name, reference in (
            ("silhouette", silhouette_score),
            ("davies_bouldin", davies_bouldin_score),
        ):
            expected = reference(vectors[kept], ranks[kept])
            assert getattr(clusters, name)[place] == pytest.approx(expected, rel=1e-9)


def test_equal_rows_and_equal_centres_are_no_trouble():
    vectors = np.zeros((6, 3))
    ranks = np.array([0, 0, 0, 1, 1, 2])
    clusters = cluster_scores(vectors, ranks, (1.0,))
    assert clusters.silhouette == [0.0]
    assert clusters.davies_bouldin == [davies_bouldin_score(vectors, ranks)]


def test_one_combination_or_rows_that_are_all_alone_have_no_score():
    vectors, _ = drawn(5)
    alone = cluster_scores(vectors, np.arange(5), (1.0,))
    single = cluster_scores(vectors, np.zeros(5, np.int64), (1.0,))
    for clusters in (alone, single):
        assert (clusters.silhouette, clusters.davies_bouldin) == ([None], [None])


def test_cosines_are_means_over_pairs():
    vectors, targets = drawn(40)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    dense = targets.toarray().astype(int)
    alike, unlike = [], []
    for i in range(40):
        for k in range(40):
            if i != k:
                (alike if dense[i] @ dense[k] else unlike).append(unit[i] @ unit[k])
    table = pull_table(vectors, targets)
    assert [row[1] for row in table.rows] == pytest.approx([np.mean(alike), np.mean(unlike)])


def test_the_plane_is_that_of_principal_components():
    vectors, _ = drawn()
    places, share = principal_plane(vectors)
    reference = PCA(2, svd_solver="full").fit(vectors)
    expected = reference.transform(vectors)
    for column in range(2):
        sign = np.sign(places[0, column] * expected[0, column])
        np.testing.assert_allclose(places[:, column], sign * expected[:, column], atol=1e-9)
    assert share == pytest.approx(reference.explained_variance_ratio_.sum())


def test_vectors_of_one_number_or_without_variance_have_a_plane_too():
    places, share = principal_plane(np.arange(4.0)[:, None])
    assert (places[:, 1] == 0).all()
    assert share == pytest.approx(1)
    assert principal_plane(np.ones((4, 3)))[1] == 0


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    for method, *options in (
        ("abalone", "--epochs", "1", "--linear-epochs", "1"),
        ("ce", "--epochs", "1"),
        ("mlknn",),
    ):
        out = str(home / method)
        assert main([method, "--dataset", "demo", "--out", out, "--no-progress", *options]) == 0
    return {run.name: run for run in load_runs([home / m for m in ("abalone", "ce", "mlknn")])}


def test_vectors_are_what_the_linear_layers_read(runs):
    rows = np.array([5, 0, 17])[[1, 0, 2]]
    for name in ("abalone", "ce"):
        run = runs[name]
        vectors = run.embeddings(rows)
        assert vectors.shape == (3, run.checkpoint.config["hidden"][-1])
        np.testing.assert_allclose(vectors, run.embeddings(shown_rows(run))[rows], rtol=1e-5)
    run = runs["abalone"]
    weights = {key: value.double().numpy() for key, value in run.checkpoint.weights.items()}
    logits = np.einsum("rs,shl->rhl", vectors_of(run), weights["heads.weight"])
    scores = (1 / (1 + np.exp(-logits - weights["heads.bias"]))).mean(1)
    np.testing.assert_allclose(scores, run.test_scores, atol=1e-5)


def vectors_of(run):
    return run.embeddings(np.arange(run.true.shape[0]))


def test_a_method_without_vectors_has_none(runs):
    assert runs["mlknn"].embeddings(np.arange(3)) is None


def test_more_rows_than_are_looked_at_are_drawn(runs, monkeypatch):
    monkeypatch.setattr(representation, "MOST_ROWS", 9)
    rows = shown_rows(runs["ce"])
    assert len(set(rows.tolist())) == 9
    assert rows.tolist() == sorted(rows) == shown_rows(runs["abalone"]).tolist()


def test_the_map_names_the_most_frequent_labels(runs):
    run = runs["abalone"]
    rows = shown_rows(run)
    svg, share = figures.row_map(run.embeddings(rows), run.true[rows], run.checkpoint.labels)
    counts = np.asarray(run.true.sum(axis=0)).ravel()
    assert run.checkpoint.labels[counts.argmax()] in svg
    assert 0 < share <= 1
