from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from napkinxc import metrics as napkin
from scipy import sparse
from sklearn.metrics import ndcg_score

from train import metrics
from train.errors import DataError


@st.composite
def scored(draw):
    """Scores with ties, targets with empty and full rows, and a k that fits."""
    shape = draw(st.tuples(st.integers(1, 7), st.integers(1, 6)))
    values = st.sampled_from([0.0, 0.25, 0.5, 1.0])
    k = draw(st.integers(1, shape[1]))
    return draw(hnp.arrays(np.float32, shape, elements=values)), draw(hnp.arrays(bool, shape)), k


def label_lists(targets):
    return [np.flatnonzero(row).tolist() for row in targets]


@settings(max_examples=100)
@given(data=scored())
def test_precision_recall_and_ndcg_agree_with_napkinxc(data):
    scores, targets, k = data
    ranked = metrics.top_k(scores, k)
    rows, true, best = sparse.csr_array(targets), label_lists(targets), ranked.tolist()
    for ours, theirs in (
        (metrics.precision_at_k, napkin.precision_at_k),
        (metrics.recall_at_k, napkin.recall_at_k),
        (metrics.ndcg_at_k, napkin.ndcg_at_k),
    ):
        expected = theirs(true, best, k=k)[-1]
        assert ours(ranked, rows, k=k) == pytest.approx(expected), ours.__name__


@pytest.mark.parametrize("k", [1, 3, 7, 20])
def test_ndcg_agrees_with_scikit_learn_without_ties(k):
    rng = np.random.default_rng(k)
    scores = rng.permutation(30 * 20).reshape(30, 20).astype(np.float32)
    targets = rng.random((30, 20)) < 0.15
    expected = ndcg_score(targets, scores, k=k)
    assert metrics.ndcg_at_k(metrics.top_k(scores, k), targets, k=k) == pytest.approx(expected)


@pytest.mark.parametrize(("a", "b"), [(0.55, 1.5), (0.5, 0.4), (0.6, 2.6)])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_propensities_and_psp_agree_with_napkinxc(a, b, k):
    rng = np.random.default_rng(k)
    train = sparse.csr_matrix((rng.random((200, 12)) < rng.random(12) ** 3).astype(np.float32))
    targets = rng.random((60, 12)) < 0.3
    targets[7] = False
    inverse = napkin.Jain_et_al_inverse_propensity(train, A=a, B=b)
    counts = np.asarray(train.sum(axis=0)).ravel().astype(np.int64)
    ours = metrics.propensities(counts, 200, a, b)
    np.testing.assert_allclose(1 / ours, inverse, rtol=1e-6)
    ranked = metrics.top_k(rng.random((60, 12), dtype=np.float32), 5)
    expected = napkin.psprecision_at_k(label_lists(targets), ranked.tolist(), inverse, k=k)[-1]
    assert metrics.psp_at_k(ranked, targets, ours, k=k) == pytest.approx(expected)


def test_perfect_rankings_have_psp_one_even_with_fewer_labels_than_k():
    targets = np.array([[True, True, False, False], [False, False, False, True]])
    propensity = np.array([0.9, 0.2, 0.5, 0.3])
    ranked = np.array([[1, 0, 2], [3, 0, 1]])
    assert metrics.psp_at_k(ranked, targets, propensity, k=3) == pytest.approx(1.0)
    assert metrics.psp_at_k(ranked, targets, propensity, k=1) == pytest.approx(1.0)


@settings(max_examples=100)
@given(data=scored(), seed=st.integers(0, 9))
def test_pair_recall_counts_each_pair_of_the_slice_once(data, seed):
    scores, targets, k = data
    ranked = metrics.top_k(scores, k)
    labels = np.random.default_rng(seed).random(targets.shape[1]) < 0.5
    pairs = [(row, label) for row, label in zip(*np.nonzero(targets), strict=True) if labels[label]]
    if not pairs:
        with pytest.raises(DataError, match="no row has a label of the slice"):
            metrics.pair_recall_at_k(ranked, targets, k=k, labels=labels)
        return
    expected = np.mean([label in ranked[row] for row, label in pairs])
    got = metrics.pair_recall_at_k(ranked, targets, k=k, labels=labels)
    assert got == pytest.approx(expected)


def test_pair_recall_of_all_labels_weighs_pairs_not_rows():
    targets = np.array([[True, True, True], [True, False, False]])
    ranked = np.array([[0], [0]])
    assert metrics.pair_recall_at_k(ranked, targets, k=1) == 0.5
    assert metrics.recall_at_k(ranked, targets, k=1) == pytest.approx((1 / 3 + 1) / 2)


def test_empty_places_never_hit_the_row_before():
    targets = np.array([[False, True], [True, False]])
    ranked = np.array([[0, -1], [-1, -1]])
    assert metrics.precision_at_k(ranked, targets, k=2) == 0


def test_memory_follows_rows_and_not_rows_times_labels():
    rng = np.random.default_rng(0)
    n_rows, n_labels, per_row = 20_000, 325_000, 4
    columns = rng.integers(0, n_labels // per_row, (n_rows, per_row))
    columns += np.arange(per_row) * (n_labels // per_row)
    targets = sparse.csr_array(
        (
            np.ones(n_rows * per_row, dtype=np.uint8),
            columns.ravel(),
            np.arange(n_rows + 1) * per_row,
        ),
        shape=(n_rows, n_labels),
    )
    ranked = np.hstack([columns[:, :1], rng.integers(0, n_labels // per_row, (n_rows, 4))])
    propensity = metrics.propensities(np.bincount(columns.ravel(), minlength=n_labels), n_rows)
    tracemalloc.start()
    values = [
        metrics.precision_at_k(ranked, targets, k=1),
        metrics.recall_at_k(ranked, targets, k=5),
        metrics.ndcg_at_k(ranked, targets, k=5),
        metrics.psp_at_k(ranked, targets, propensity, k=5),
        metrics.pair_recall_at_k(ranked, targets, k=5),
    ]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values[0] == 1.0
    assert values[1] == pytest.approx(0.25, abs=0.001)
    # A bool matrix of all cells would take 6,500 MB.
    assert peak < 32e6


@pytest.mark.parametrize(
    ("ranked", "k", "message"),
    [
        (np.zeros((3, 2), int), 1, "each of the 2 rows"),
        (np.zeros((2, 2)), 1, "rank scores with top_k"),
        (np.zeros(2, int), 1, "each of the 2 rows"),
        (np.zeros((2, 2), int), 3, "between 1 and the 2 ranked"),
        (np.zeros((2, 2), int), 0, "between 1 and the 2 ranked"),
        (np.full((2, 2), 3), 1, "below 3"),
        (np.full((2, 2), -2), 1, "below 3"),
    ],
)
def test_bad_rankings_are_refused_in_one_sentence(ranked, k, message):
    with pytest.raises(DataError, match=message):
        metrics.precision_at_k(ranked, np.ones((2, 3), bool), k=k)


def test_psp_refuses_what_it_cannot_weigh():
    ranked, propensity = np.zeros((2, 1), int), np.full(3, 0.5)
    with pytest.raises(DataError, match="without any label"):
        metrics.psp_at_k(ranked, np.zeros((2, 3), bool), propensity, k=1)
    with pytest.raises(DataError, match="each of 3 labels"):
        metrics.psp_at_k(ranked, np.ones((2, 3), bool), propensity[:2], k=1)


@pytest.mark.parametrize(("counts", "n_rows"), [([1], 2), ([-1], 10), ([11], 10), ([[1]], 10)])
def test_propensities_refuse_impossible_counts(counts, n_rows):
    with pytest.raises(DataError):
        metrics.propensities(np.array(counts), n_rows)
