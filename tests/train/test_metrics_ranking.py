from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn import metrics as oracle

from train import metrics
from train.errors import DataError
from train.metrics import order


@st.composite
def scored(draw):
    """Scores with many ties, negatives and both zeros, and targets with empty and full rows."""
    shape = draw(st.tuples(st.integers(1, 7), st.integers(1, 6)))
    values = st.sampled_from([-1.5, -0.0, 0.0, 0.25, 0.5, 1.0])
    return draw(hnp.arrays(np.float32, shape, elements=values)), draw(hnp.arrays(bool, shape))


def distinct(seed, rows=40, labels=17, share=0.2):
    """Scores without ties, so that every tie rule gives the same ranking."""
    rng = np.random.default_rng(seed)
    scores = rng.permutation(rows * labels).reshape(rows, labels).astype(np.float32)
    return scores / scores.max(), rng.random((rows, labels)) < share


def slow_ranking(scores):
    """Item numbers, best first, ties to the lower number."""
    return sorted(range(len(scores)), key=lambda item: (-scores[item], item))


def slow_average_precision(scores, targets):
    found, total = 0, 0.0
    for rank, item in enumerate(slow_ranking(scores), start=1):
        if targets[item]:
            found += 1
            total += found / rank
    return total / found


def slow_map(scores, targets):
    groups = zip(scores, targets, strict=True)
    return np.mean([slow_average_precision(s, t) for s, t in groups if t.any()])


def padded(scores, targets):
    """A last label that is never true and always last: scikit-learn refuses a single column."""
    low = np.full((len(scores), 1), scores.min() - 1, dtype=np.float32)
    return np.hstack([scores, low]), np.hstack([targets, np.zeros((len(targets), 1), bool)])


@settings(max_examples=150)
@given(data=scored())
def test_lrap_and_coverage_follow_scikit_learn_on_ties_and_empty_rows(data):
    scores, targets = padded(*data)
    expected = oracle.label_ranking_average_precision_score(targets, scores)
    assert metrics.lrap(scores, targets) == pytest.approx(expected)
    expected = oracle.coverage_error(targets, scores)
    assert metrics.coverage_error(scores, targets) == pytest.approx(expected)


@settings(max_examples=150)
@given(data=scored())
def test_ranking_loss_follows_scikit_learn_on_ties_empty_and_full_rows(data):
    scores, targets = data
    if scores.shape[1] == 1:
        assert metrics.ranking_loss(scores, targets) == 0
        return
    expected = oracle.label_ranking_loss(targets, scores)
    assert metrics.ranking_loss(scores, targets) == pytest.approx(expected)


@settings(max_examples=150)
@given(data=scored())
def test_mean_average_precision_breaks_ties_by_lower_label_and_row(data):
    scores, targets = data
    if not targets.any():
        with pytest.raises(DataError, match="without any label"):
            metrics.map_by_row(scores, targets)
        with pytest.raises(DataError, match="without any label"):
            metrics.map_by_label(scores, targets)
        return
    assert metrics.map_by_row(scores, targets) == pytest.approx(slow_map(scores, targets))
    assert metrics.map_by_label(scores, targets) == pytest.approx(slow_map(scores.T, targets.T))


@pytest.mark.parametrize("seed", range(5))
def test_mean_average_precision_agrees_with_scikit_learn_without_ties(seed):
    scores, targets = distinct(seed)
    targets[:, 3] = False
    targets[5] = False
    labels = targets.any(axis=0)
    expected = oracle.average_precision_score(targets[:, labels], scores[:, labels])
    assert metrics.map_by_label(scores, sparse.csr_array(targets)) == pytest.approx(expected)
    rows = targets.any(axis=1)
    expected = oracle.average_precision_score(targets[rows].T, scores[rows].T)
    assert metrics.map_by_row(scores, sparse.csr_array(targets)) == pytest.approx(expected)


def test_rankings_do_not_depend_on_the_size_of_the_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 6, (23, 11)).astype(np.float32)
    targets = rng.random((23, 11)) < 0.3
    functions = (metrics.lrap, metrics.map_by_row, metrics.map_by_label, metrics.ranking_loss)
    whole = [function(scores, targets) for function in functions]
    best = metrics.top_k(scores, 4)
    monkeypatch.setattr(order, "_BLOCK_CELLS", 30)
    assert [function(scores, targets) for function in functions] == whole
    assert (metrics.top_k(scores, 4) == best).all()


@settings(max_examples=150)
@given(data=scored(), share=st.floats(0, 1))
def test_top_k_ranks_by_score_then_by_lower_label(data, share):
    scores, _ = data
    k = max(1, round(share * scores.shape[1]))
    assert metrics.top_k(scores, k).tolist() == [slow_ranking(row)[:k] for row in scores]


def test_top_k_orders_infinities_and_tiny_numbers():
    tiny = np.float32(1e-45)
    row = np.array([[0, -np.inf, tiny, -tiny, np.inf, -3e38, 3e38]], dtype=np.float32)
    assert metrics.top_k(row, 7).tolist() == [[4, 6, 2, 0, 3, 5, 1]]


def test_permuting_labels_permutes_the_ranking_and_keeps_the_metrics():
    scores, targets = distinct(3)
    order_ = np.random.default_rng(0).permutation(scores.shape[1])
    moved, moved_targets = scores[:, order_], targets[:, order_]
    assert (order_[metrics.top_k(moved, 5)] == metrics.top_k(scores, 5)).all()
    assert metrics.lrap(moved, moved_targets) == pytest.approx(metrics.lrap(scores, targets))


@settings(max_examples=60)
@given(pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=30))
def test_balanced_error_is_the_mean_error_of_the_labels_present(pairs):
    predicted, true = np.array(pairs).T
    rates = [np.mean([p != label for p, t in pairs if t == label]) for label in set(true.tolist())]
    assert metrics.balanced_error(predicted, true) == pytest.approx(np.mean(rates))


@pytest.mark.parametrize("arrays", [([], []), ([1, 2], [1]), ([[1]], [[1]])])
def test_balanced_error_refuses_bad_vectors(arrays):
    with pytest.raises(DataError, match="balanced_error"):
        metrics.balanced_error(*map(np.array, arrays))


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.zeros((0, 3)), "at least one row"),
        (np.zeros(3), "matrix"),
        (np.array([[0.1, np.nan, 0.2]]), "NaN"),
        (np.zeros((2, 3)), "but targets has"),
    ],
)
def test_bad_scores_are_refused_in_one_sentence(scores, message):
    with pytest.raises(DataError, match=message):
        metrics.lrap(scores, np.array([[True, False, False]]))


@pytest.mark.parametrize("k", [0, 4])
def test_top_k_refuses_a_k_outside_the_labels(k):
    with pytest.raises(DataError, match="between 1 and the 3 labels"):
        metrics.top_k(np.zeros((2, 3)), k)
