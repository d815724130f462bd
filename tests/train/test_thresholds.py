from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import f1_score

from train import metrics, thresholds
from train.errors import ConfigError, DataError


@st.composite
def scored(draw):
    """Unit scores with ties and close neighbours, and targets with empty and full labels."""
    shape = draw(st.tuples(st.integers(1, 12), st.integers(1, 5)))
    near = np.nextafter(np.float32(0.5), np.float32(1))
    values = st.sampled_from([0.0, 0.1, 0.5, float(near), 0.7, 1.0])
    return draw(hnp.arrays(np.float32, shape, elements=values)), draw(hnp.arrays(bool, shape))


def random_data(seed=0, rows=80, labels=6):
    rng = np.random.default_rng(seed)
    targets = rng.random((rows, labels)) < 0.3
    scores = np.clip(0.4 * targets + 0.6 * rng.random((rows, labels)), 0, 1)
    return scores.astype(np.float32), targets


def f1_at(scores, targets, threshold):
    return f1_score(targets, scores >= threshold, zero_division=0)


def test_monitors_are_the_documented_metrics():
    scores, targets = random_data()

    def best(average):
        return max(
            f1_score(targets, scores >= np.float32(bound / 10), average=average, zero_division=0)
            for bound in range(1, 10)
        )

    at_half = f1_score(targets, scores >= 0.5, average="samples", zero_division=0)
    expected = {
        "example_f1": at_half,
        "micro_f1": f1_score(targets, scores >= 0.5, average="micro"),
        "tuned_macro_f1": best("macro"),
        "tuned_mean_f1": (best("samples") + best("micro") + best("macro")) / 3,
    }
    assert expected["tuned_mean_f1"] > at_half  # the threshold matters here
    for monitor, value in expected.items():
        assert thresholds.monitored_score(scores, targets, monitor) == pytest.approx(value)


def test_grids_are_the_published_ones():
    assert thresholds.CGMVAE_GRID == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    assert len(thresholds.MPVAE_GRID) == 27
    assert thresholds.MPVAE_GRID[:3] == (0.01, 0.02, 0.03)
    assert thresholds.MPVAE_GRID[9:12] == (0.1, 0.15, 0.2)
    assert thresholds.MPVAE_GRID[-1] == 0.95
    assert set(thresholds.CGMVAE_GRID) < set(thresholds.MPVAE_GRID)


@pytest.mark.parametrize("metric", thresholds.TUNABLE)
@pytest.mark.parametrize("grid", [thresholds.CGMVAE_GRID, thresholds.MPVAE_GRID])
def test_tuned_threshold_is_the_best_of_its_candidates(metric, grid):
    scores, targets = random_data()
    measure = getattr(metrics, metric)
    values = [measure(metrics.predict(scores, bound), targets) for bound in grid]
    best = thresholds.tuned_threshold(scores, targets, metric, candidates=grid)
    assert measure(metrics.predict(scores, best), targets) == max(values)
    assert best in np.float32(grid)


def test_of_equal_candidates_the_one_nearest_a_half_is_taken():
    scores, targets = np.array([[0.0, 1.0]], dtype=np.float32), np.array([[False, True]])
    assert thresholds.tuned_threshold(scores, targets) == 0.5
    assert thresholds.tuned_threshold(scores, targets, candidates=(0.75, 0.25)) == 0.25


def test_thresholds_mean_the_same_in_float32_float64_and_json():
    scores, targets = np.float32([[0.7, 0.2]]), np.array([[True, False]])
    best = thresholds.tuned_threshold(scores, targets, candidates=(0.7,))
    read_back = json.loads(json.dumps(best))
    assert scores[0, 0] >= np.float32(read_back)
    assert float(scores[0, 0]) >= read_back


@settings(max_examples=200)
@given(data=scored())
def test_per_label_thresholds_reach_the_best_f1_there_is(data):
    scores, targets = data
    got = thresholds.per_label_thresholds(scores, targets, fallback=0.25, min_positives=1)
    assert got.dtype == np.float32
    for label in range(targets.shape[1]):
        column, true = scores[:, label], targets[:, label]
        if not true.any():
            assert got[label] == np.float32(0.25)
            continue
        best = max(f1_at(column, true, bound) for bound in column)
        assert f1_at(column, true, got[label]) == pytest.approx(best)


def test_per_label_threshold_lies_half_way_to_the_next_lower_score():
    scores = np.float32([[0.75, 0.5], [0.25, 0.5], [0.0, 0.25]])
    targets = np.array([[True, True], [False, True], [False, True]])
    got = thresholds.per_label_thresholds(scores, targets, fallback=0.9, min_positives=1)
    assert got.tolist() == [0.5, 0.125]


def test_of_equal_cuts_the_highest_threshold_is_taken():
    # Cutting below the first row gives 2*1/(1+2), below all four 2*2/(4+2): equal.
    scores = np.float32([[0.75], [0.5], [0.25], [0.125]])
    targets = np.array([[True], [False], [False], [True]])
    got = thresholds.per_label_thresholds(scores, targets, fallback=0.9, min_positives=1)
    assert got.tolist() == [0.625]


def test_rare_labels_get_the_common_threshold():
    scores, targets = random_data(rows=200)
    targets[:, 0] = False
    targets[:4, 1] = True
    targets[4:, 1] = False
    common = np.float32(thresholds.tuned_threshold(scores, targets))
    got = thresholds.per_label_thresholds(scores, targets)
    assert got[0] == got[1] == common
    assert (got[2:] != common).all()
    targets[4, 1] = True
    assert thresholds.per_label_thresholds(scores, targets, fallback=0.33)[1] != np.float32(0.33)


def test_without_any_positive_all_labels_get_the_fallback():
    scores, targets = np.float32([[0.2, 0.9]]), np.zeros((1, 2), bool)
    got = thresholds.per_label_thresholds(scores, targets, fallback=0.5)
    assert got.tolist() == [0.5, 0.5]


def test_oracle_metrics_take_each_metric_at_its_own_best_threshold():
    scores, targets = random_data(1)
    got = thresholds.oracle_metrics(scores, targets, thresholds.CGMVAE_GRID)
    assert set(got) == {f"oracle_{name}" for name in thresholds.TUNABLE}
    values = [
        f1_score(targets, scores >= np.float32(bound), average="macro", zero_division=0)
        for bound in thresholds.CGMVAE_GRID
    ]
    assert got["oracle_macro_f1"] == pytest.approx(max(values))


def test_every_tunable_metric_is_a_key_of_evaluate():
    scores, targets = random_data()
    values = metrics.evaluate(scores, targets, thresholds=thresholds.FIXED_THRESHOLD)
    for name, metric in thresholds.metrics_by_threshold(scores, targets, [0.5]).items():
        assert metric.tolist() == [values[name]]


@pytest.mark.parametrize(
    ("metric", "candidates", "message"),
    [("exampel_f1", (0.5,), "did you mean 'example_f1'"), ("example_f1", (), "at least one")],
)
def test_bad_choices_are_refused(metric, candidates, message):
    with pytest.raises(ConfigError, match=message):
        thresholds.tuned_threshold(*random_data(), metric, candidates=candidates)


def test_logits_are_refused():
    with pytest.raises(DataError, match="sigmoid"):
        thresholds.per_label_thresholds(np.float32([[2.0]]), np.array([[True]]))
