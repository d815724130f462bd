from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn import metrics as oracle

from train import metrics
from train.errors import DataError


@st.composite
def set_pairs(draw):
    """Two random bool matrices of one shape, empty and full rows and labels included."""
    shape = draw(st.tuples(st.integers(1, 8), st.integers(1, 6)))
    one = hnp.arrays(bool, shape)
    return draw(one), draw(one)


def sklearn_f1(predicted, targets, average):
    # One label alone would be taken for a binary problem; a label that is always false changes
    # neither rows nor totals, and its zero in the macro mean is taken out again.
    pad = np.zeros((len(targets), 1), dtype=bool)
    value = oracle.f1_score(
        np.hstack([targets, pad]), np.hstack([predicted, pad]), average=average, zero_division=0
    )
    return value * (targets.shape[1] + 1) / targets.shape[1] if average == "macro" else value


def pairs(predicted, targets):
    return zip(predicted, targets, strict=True)


def slow_iou(predicted, true):
    both = sum(1 for a, b in pairs(predicted, true) if a and b)
    either = sum(1 for a, b in pairs(predicted, true) if a or b)
    return both / either if either else 0.0


ORACLES = {
    metrics.example_f1: lambda p, t: sklearn_f1(p, t, "samples"),
    metrics.micro_f1: lambda p, t: sklearn_f1(p, t, "micro"),
    metrics.macro_f1: lambda p, t: sklearn_f1(p, t, "macro"),
    metrics.mean_iou: lambda p, t: np.mean([slow_iou(a, b) for a, b in pairs(p, t)]),
    metrics.global_iou: lambda p, t: slow_iou(p.ravel(), t.ravel()),
    metrics.subset_accuracy: lambda p, t: np.mean([list(a) == list(b) for a, b in pairs(p, t)]),
    metrics.hamming_loss: lambda p, t: np.mean([a != b for a, b in pairs(p.flat, t.flat)]),
    metrics.hamming_accuracy: lambda p, t: np.mean([a == b for a, b in pairs(p.flat, t.flat)]),
    metrics.micro_precision: lambda p, t: (p & t).sum() / max(p.sum(), 1),
    metrics.micro_recall: lambda p, t: (p & t).sum() / max(t.sum(), 1),
    metrics.macro_precision: lambda p, t: np.mean(
        [(a & b).sum() / max(a.sum(), 1) for a, b in pairs(p.T, t.T)]
    ),
    metrics.macro_recall: lambda p, t: np.mean(
        [(a & b).sum() / max(b.sum(), 1) for a, b in pairs(p.T, t.T)]
    ),
}


@pytest.mark.parametrize("metric", ORACLES, ids=lambda metric: metric.__name__)
@settings(max_examples=30)
@given(pair=set_pairs())
def test_set_metric_agrees_with_oracle_dense_and_sparse(metric, pair):
    predicted, targets = pair
    expected = pytest.approx(ORACLES[metric](predicted, targets), abs=1e-12)
    rows = sparse.csr_array(targets.astype(np.uint8))
    assert metric(predicted, targets) == expected
    assert metric(predicted, rows) == expected
    assert metric(sparse.csr_array(predicted.astype(np.uint8)), rows) == expected


def test_hamming_and_subset_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    targets, predicted = rng.random((50, 9)) < 0.2, rng.random((50, 9)) < 0.05
    assert metrics.hamming_loss(predicted, targets) == oracle.hamming_loss(targets, predicted)
    expected = oracle.accuracy_score(targets, predicted)
    assert metrics.subset_accuracy(predicted, targets) == pytest.approx(expected)


@settings(max_examples=30)
@given(pair=set_pairs())
def test_example_f1_that_skips_empty_rows_is_the_mean_over_the_others(pair):
    predicted, targets = pair
    kept = [2 * (p & t).sum() / (p.sum() + t.sum()) for p, t in pairs(*pair) if (p | t).any()]
    if not kept:
        with pytest.raises(DataError, match="no row has a true or predicted label"):
            metrics.example_f1(predicted, targets, empty="skip")
    else:
        got = metrics.example_f1(predicted, targets, empty="skip")
        assert got == pytest.approx(np.mean(kept))


def test_the_two_conventions_for_empty_rows_differ():
    predicted = targets = np.array([[True, False], [False, False]])
    assert metrics.example_f1(predicted, targets, empty="zero") == 0.5
    assert metrics.example_f1(predicted, targets, empty="skip") == 1.0


def test_unsorted_duplicated_and_zero_cells_of_a_csr_are_cleaned():
    messy = sparse.csr_array(
        (np.array([1, 1, 1, 0], dtype=np.uint8), np.array([2, 0, 2, 1]), np.array([0, 4])),
        shape=(1, 3),
    )
    assert metrics.micro_f1(messy, np.array([[1, 0, 1]])) == 1.0
    assert messy.nnz == 4


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (0.5, [[False, True, True]]),
        (0.7, [[False, False, True]]),
        (np.array([0.0, 0.6, 0.8]), [[True, False, False]]),
        (np.array([0.49, np.inf, 0.7]), [[True, False, True]]),
    ],
)
def test_predict_takes_scores_equal_to_the_threshold(threshold, expected):
    scores = np.array([[0.49, 0.5, 0.7]], dtype=np.float32)
    assert metrics.predict(scores, threshold).tolist() == expected


@pytest.mark.parametrize(
    ("predicted", "targets", "message"),
    [
        (np.zeros((0, 3), bool), np.zeros((0, 3), bool), "at least one row and one label"),
        (np.zeros((2, 0), bool), np.zeros((2, 0), bool), "at least one row and one label"),
        (np.zeros(3, bool), np.zeros((1, 3), bool), "has shape"),
        (np.zeros((2, 3), bool), np.zeros((2, 4), bool), "has shape"),
        (np.full((2, 3), 0.3), np.zeros((2, 3), bool), "only 0 and 1"),
        (np.zeros((2, 3), bool), np.full((2, 3), -1), "only 0 and 1"),
    ],
)
def test_bad_sets_are_refused_in_one_sentence(predicted, targets, message):
    with pytest.raises(DataError, match=message):
        metrics.micro_f1(predicted, targets)


@pytest.mark.parametrize("thresholds", [np.zeros(2), np.nan])
def test_bad_thresholds_are_refused(thresholds):
    with pytest.raises(DataError, match="thresholds"):
        metrics.predict(np.zeros((2, 3), dtype=np.float32), thresholds)


def test_nothing_warns_where_everything_is_zero():
    nothing = np.zeros((3, 2), bool)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = {metric: metric(nothing, nothing) for metric in ORACLES}
    right = (metrics.subset_accuracy, metrics.hamming_accuracy)
    assert values == {metric: float(metric in right) for metric in ORACLES}
