from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from train import metrics
from train.errors import DataError

SET_METRICS = (
    "example_f1",
    "micro_f1",
    "micro_precision",
    "micro_recall",
    "macro_f1",
    "macro_precision",
    "macro_recall",
    "hamming_accuracy",
    "subset_accuracy",
)
SCORE_METRICS = (
    "map_by_label",
    "map_by_row",
    "lrap",
    "coverage_error",
    "ranking_loss",
    "calibration_error",
)


def random_data(seed=0, rows=60, labels=30):
    rng = np.random.default_rng(seed)
    # Two decimals make many ties.
    scores = rng.random((rows, labels)).round(2).astype(np.float32)
    targets = rng.random((rows, labels)) < 0.15
    targets[4], targets[5], targets[:, 6] = False, True, False
    return scores, sparse.csr_array(targets.astype(np.uint8)), rng.integers(0, 200, labels)


def slow_balanced_error(best, targets, labels):
    """Mean over labels with a row of the share of their rows that another label comes first in."""
    rates = []
    for label in np.flatnonzero(labels):
        rows = np.flatnonzero(targets.toarray()[:, label])
        if len(rows):
            rates.append(sum(best[row] != label for row in rows) / len(rows))
    return sum(rates) / len(rates)


def test_balanced_error_with_one_label_a_row_is_that_of_the_best_label():
    scores, _, _ = random_data()
    true = np.random.default_rng(2).integers(0, 30, 60)
    got = metrics.evaluate(scores, np.eye(30, dtype=bool)[true], thresholds=0.5)
    expected = metrics.balanced_error(metrics.top_k(scores, 1)[:, 0], true)
    assert got["balanced_error"] == pytest.approx(expected)
    assert "pair_recall@50" not in got  # there are thirty labels
    assert got["pair_recall@10"] == pytest.approx(
        np.mean([y in row for y, row in zip(true, metrics.top_k(scores, 10), strict=True)])
    )


def test_evaluate_equals_each_metric_on_its_own():
    scores, targets, counts = random_data()
    propensity = metrics.propensities(counts, 500)
    bounds = np.linspace(0.3, 0.9, 30)
    got = metrics.evaluate(
        scores, targets, thresholds=bounds, train_counts=counts, propensity=propensity, ks=(1, 4),
    )  # fmt: skip
    predicted, ranked = metrics.predict(scores, bounds), metrics.top_k(scores, 10)
    expected = {"example_f1_skip_empty": metrics.example_f1(predicted, targets, empty="skip")}
    for name in SET_METRICS:
        expected[name] = getattr(metrics, name)(predicted, targets)
    for name in SCORE_METRICS:
        expected[name] = getattr(metrics, name)(scores, targets)
    for k in (1, 4):
        for name in ("precision", "recall", "ndcg"):
            expected[f"{name}@{k}"] = getattr(metrics, f"{name}_at_k")(ranked, targets, k=k)
        expected[f"psp@{k}"] = metrics.psp_at_k(ranked, targets, propensity, k=k)
    for k in (1, 4):
        expected[f"pair_recall@{k}"] = metrics.pair_recall_at_k(ranked, targets, k=k)
        for name, mask in metrics.slices_by_quantile(counts).items():
            key = f"pair_recall@{k}_quantile_{name}"
            expected[key] = metrics.pair_recall_at_k(ranked, targets, k=k, labels=mask)
    every = np.ones(30, dtype=bool)
    expected["balanced_error"] = slow_balanced_error(ranked[:, 0], targets, every)
    for name, mask in metrics.slices_by_count(counts).items():
        expected[f"balanced_error_{name}"] = slow_balanced_error(ranked[:, 0], targets, mask)
        expected[f"macro_f1_{name}"] = metrics.macro_f1(predicted[:, mask], targets[:, mask])
        expected[f"map_by_label_{name}"] = metrics.map_by_label(scores[:, mask], targets[:, mask])
    assert got == pytest.approx(expected)


def test_evaluate_leaves_out_what_it_was_given_nothing_for():
    scores, targets, _ = random_data()
    names = set(metrics.evaluate(scores, targets, thresholds=0.5))
    assert not [name for name in names if "psp" in name or "head" in name or "quantile" in name]
    assert {"precision@1", "precision@3", "precision@5"} <= names


def test_evaluate_leaves_out_slices_without_labels_and_ks_above_the_labels():
    scores, targets = np.array([[0.2, 0.7]], dtype=np.float32), np.array([[False, True]])
    got = metrics.evaluate(scores, targets, thresholds=0.5, train_counts=np.array([500, 500]))
    assert "macro_f1_head" in got
    assert "macro_f1_tail" not in got
    assert "precision@3" not in got
    assert got["precision@1"] == got["macro_f1_head"] * 2 == 1.0


def test_evaluate_skips_average_precision_of_a_slice_without_positives():
    scores, targets = np.array([[0.2, 0.7]], dtype=np.float32), np.array([[False, True]])
    got = metrics.evaluate(scores, targets, thresholds=0.5, train_counts=np.array([3, 500]))
    assert got["macro_f1_tail"] == 0
    assert "map_by_label_tail" not in got
    assert "pair_recall@1_quantile_tail" not in got


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": np.full((60, 30), 1.5)}, "apply the sigmoid"),
        ({"scores": np.full((60, 30), -0.1)}, "apply the sigmoid"),
        ({"scores": np.full((60, 30), np.nan)}, "NaN"),
        ({"scores": np.zeros((0, 30))}, "at least one row"),
        ({"scores": np.zeros((60, 29))}, "but targets has"),
        ({"targets": np.zeros((60, 30), bool)}, "without any label"),
        ({"thresholds": np.zeros(29)}, "each of 30 labels"),
        ({"train_counts": np.zeros(29)}, "each of 30 labels"),
        ({"propensity": np.ones(29)}, "each of 30 labels"),
        ({"ks": (0, 1)}, "at least 1"),
    ],
)
def test_evaluate_refuses_bad_input_in_one_sentence(change, message):
    scores, targets, _ = random_data()
    with pytest.raises(DataError, match=message):
        metrics.evaluate(**{"scores": scores, "targets": targets, "thresholds": 0.5, **change})


@settings(max_examples=100)
@given(
    data=st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
        lambda shape: st.tuples(
            hnp.arrays(np.float32, shape, elements=st.floats(0, 1, width=32)),
            hnp.arrays(bool, shape),
        )
    ),
    bins=st.integers(1, 20),
)
def test_calibration_error_is_the_weighted_gap_of_the_bins(data, bins):
    scores, targets = data
    members = {}
    for score, true in zip(scores.flat, targets.flat, strict=True):
        number = min(int(score * np.float32(bins)), bins - 1)
        members.setdefault(number, []).append((float(score), float(true)))
    gaps = [len(cells) * abs(np.subtract(*np.mean(cells, axis=0))) for cells in members.values()]
    got = metrics.calibration_error(scores, targets, bins=bins)
    assert got == pytest.approx(sum(gaps) / scores.size, abs=1e-9)


def test_calibration_error_needs_a_bin():
    with pytest.raises(DataError, match="bins"):
        metrics.calibration_error(np.zeros((1, 1)), np.zeros((1, 1), bool), bins=0)


def test_slices_by_count_split_at_twenty_and_a_hundred():
    slices = metrics.slices_by_count(np.array([0, 19, 20, 99, 100, 5000]))
    assert {name: np.flatnonzero(mask).tolist() for name, mask in slices.items()} == {
        "head": [4, 5],
        "torso": [2, 3],
        "tail": [0, 1],
    }


def test_labels_tied_with_a_quantile_fall_on_its_lower_side():
    # 101 labels put the quantiles exactly on the 34th and 67th smallest count.
    counts = np.arange(101)
    slices = metrics.slices_by_quantile(counts)
    assert [slices[name].sum() for name in ("head", "torso", "tail")] == [34, 33, 34]
    assert counts[slices["tail"]].max() == 33
    assert counts[slices["torso"]].max() == 66


@given(counts=st.lists(st.integers(0, 6), min_size=1, max_size=40))
def test_each_label_is_in_exactly_one_slice(counts):
    for rule in (metrics.slices_by_count, metrics.slices_by_quantile):
        slices = rule(np.array(counts))
        assert (sum(mask.astype(int) for mask in slices.values()) == 1).all()
        in_slice = {count: {n for n in slices if slices[n][i]} for i, count in enumerate(counts)}
        for i, count in enumerate(counts):
            assert slices[next(iter(in_slice[count]))][i], "equal counts share a slice"


def test_slices_of_a_step_profile_have_no_torso():
    slices = metrics.slices_by_count(np.array([500] * 3 + [5] * 3))
    assert not slices["torso"].any()


@pytest.mark.parametrize("rule", [metrics.slices_by_count, metrics.slices_by_quantile])
def test_slices_need_counts(rule):
    with pytest.raises(DataError, match="train_counts"):
        rule(np.array([]))


def test_every_public_name_can_be_imported():
    assert all(hasattr(metrics, name) for name in metrics.__all__)
