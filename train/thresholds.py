"""Choose the score from which a label counts as predicted. The rule is always: score >= threshold.

Choose on validation rows and apply to test rows. Only `oracle_metrics` tunes on the rows it judges.
Thresholds are returned as values that float32 holds exactly, so that comparing float32 scores with
them gives the same answer in float32, in float64 and after a round trip through JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from train.errors import ConfigError, did_you_mean
from train.metrics.at_k import ndcg_at_k
from train.metrics.inputs import (
    Ints,
    LabelSets,
    Scores,
    as_label_sets,
    as_unit_scores,
    check_same_shape,
)
from train.metrics.order import RankedPositives, top_k
from train.metrics.ranking import rank_rows
from train.metrics.sets import Confusion, confusion, predict
from train.metrics.top_labels import TopLabels, best_cuts

Judged: TypeAlias = NDArray[np.floating] | TopLabels
"""Scores of every label, (rows, labels) in [0, 1], or of the best labels of every row."""

FIXED_THRESHOLD = 0.5
"""SEAL and ABALONE do not tune."""

CGMVAE_GRID = tuple(i / 10 for i in range(1, 10))
"""0.1, 0.2 ... 0.9 (C-GMVAE)."""

MPVAE_GRID = tuple(i / 100 for i in (*range(1, 11), *range(15, 100, 5)))
"""0.01 ... 0.10 by 0.01, then 0.15 ... 0.95 by 0.05 (MPVAE, LaMP); holds all of CGMVAE_GRID."""

MIN_POSITIVES = 5

TUNABLE: dict[str, Callable[[Confusion], float]] = {
    "example_f1": lambda sets: sets.example_f1("zero"),
    "micro_f1": lambda sets: float(sets.by_label.total().f1()[0]),
    "macro_f1": lambda sets: float(sets.by_label.f1().mean()),
    "hamming_accuracy": lambda sets: 1 - sets.hamming_loss(),
    "subset_accuracy": lambda sets: sets.subset_accuracy(),
}
"""The set metrics a threshold can be chosen for, by their name in `evaluate`."""

MASK_METRICS: dict[str, Callable[[Confusion], float]] = {
    "mean_iou": lambda masks: float(masks.by_row.iou().mean()),
    "global_iou": lambda masks: float(masks.by_row.total().iou()[0]),
    "pixel_accuracy": lambda masks: 1 - masks.hamming_loss(),
    "example_f1": TUNABLE["example_f1"],
}
"""Of masks: mean image IoU, IoU of all pixels together, share of right pixels, mean image F1."""


def tuned_threshold(
    scores: Judged,
    targets: LabelSets,
    metric: str = "example_f1",
    *,
    candidates: Sequence[float] = MPVAE_GRID,
) -> float:
    """Find the candidate with the best metric on these rows, for all labels together.

    Of equally good candidates the one nearest 0.5 is taken, then the lower. metric: one of TUNABLE.
    """
    if metric not in TUNABLE:
        raise ConfigError(
            f"no threshold can be tuned for {metric!r}: {did_you_mean(metric, TUNABLE)}"
        )
    values = metrics_by_threshold(scores, targets, candidates)[metric]
    bounds = np.asarray(candidates, dtype=np.float32)
    best = min(bounds[values == values.max()], key=lambda bound: (abs(bound - 0.5), bound))
    return float(best)


def metrics_by_threshold(
    scores: Judged, targets: LabelSets, candidates: Sequence[float] = MPVAE_GRID
) -> dict[str, NDArray[np.float64]]:
    """Compute each tunable metric at each candidate, in the order of the candidates."""
    if not len(candidates):
        raise ConfigError("at least one candidate threshold is needed, got none")
    true = as_label_sets(targets, "targets")
    judged = scores if isinstance(scores, TopLabels) else as_unit_scores(scores)
    counts = [confusion(predicted(judged, bound), true) for bound in candidates]
    return {name: np.array([metric(sets) for sets in counts]) for name, metric in TUNABLE.items()}


def predicted(scores: Judged, thresholds: float | NDArray[np.floating]) -> LabelSets:
    """Label sets at the thresholds: one for all labels, or (labels,)."""
    if isinstance(scores, TopLabels):
        return scores.predict(thresholds)
    return predict(scores, thresholds)


def monitored_score(scores: Judged, targets: LabelSets, monitor: str) -> float:
    """The value of `--monitor` on these rows, by which the best epoch of a run is chosen.

    `example_f1`, `micro_f1` and `mean_iou` are taken at 0.5. C-GMVAE's `tuned_macro_f1` is the best
    over CGMVAE_GRID; `tuned_mean_f1` the mean of example-, micro- and macro-F1, each at its own
    best threshold; `ndcg@5` is that of all labels if there are fewer than five.
    """
    if monitor == "ndcg@5":
        if not isinstance(scores, TopLabels):
            ranked = top_k(scores, min(5, scores.shape[1]))
        else:
            ranked = scores.ranked
        return ndcg_at_k(ranked, targets, k=min(5, ranked.shape[1]))
    if monitor in ("example_f1", "micro_f1", "mean_iou"):
        metric = (TUNABLE | MASK_METRICS)[monitor]
        return metric(confusion(predicted(scores, FIXED_THRESHOLD), targets))
    values = metrics_by_threshold(scores, targets, CGMVAE_GRID)
    if monitor == "tuned_macro_f1":
        return float(values["macro_f1"].max())
    return float(np.mean([values[f"{kind}_f1"].max() for kind in ("example", "micro", "macro")]))


def oracle_metrics(
    scores: Judged, targets: LabelSets, candidates: Sequence[float] = MPVAE_GRID
) -> dict[str, float]:
    """Give each tunable metric the candidate that is best on the very rows it is measured on.

    Optimistic: only for comparison with published tables that were made so. Keys are
    `oracle_example_f1` and so on.
    """
    values = metrics_by_threshold(scores, targets, candidates)
    return {f"oracle_{name}": float(by_bound.max()) for name, by_bound in values.items()}


def per_label_thresholds(
    scores: Judged,
    targets: LabelSets,
    *,
    fallback: float | None = None,
    min_positives: int = MIN_POSITIVES,
) -> Scores:
    """Find for each label the threshold with the best F1 on these rows, exactly: (labels,) float32.

    F1 can only peak right below a true row's score, so all cuts worth trying come from one sort.
    The threshold lies half-way between the last score that is predicted and the next lower one (0
    below the lowest); tied scores are never separated; of equally good cuts the highest is taken.

    A label with fewer than `min_positives` true rows gets `fallback`, one threshold for all such
    labels (None: the tuned_threshold of these rows for example-F1). With one true row the best cut
    is that row's own score, which says little about new rows; with none every threshold has F1 0,
    and one that never predicts would call a label impossible because a small validation part lacks
    it. The common threshold rests on all cells instead.
    """
    true = as_label_sets(targets, "targets")
    if fallback is None:
        fallback = tuned_threshold(scores, true, "example_f1")
    thresholds = np.full(true.shape[1], fallback, dtype=np.float32)
    if isinstance(scores, TopLabels):
        labels, cuts = best_cuts(scores, true)
        often = np.bincount(true.indices, minlength=true.shape[1])[labels] >= max(min_positives, 1)
        thresholds[labels[often]] = cuts[often]
        return thresholds
    matrix = as_unit_scores(scores)
    check_same_shape(matrix.shape, true, "scores")
    ranked = rank_rows(matrix, true)
    tuned = ranked.positives >= max(min_positives, 1)
    cut = _best_cuts(ranked)
    has_positive = ranked.positives > 0
    last_predicted = thresholds.copy()
    last_predicted[has_positive] = matrix[ranked.item[cut], np.flatnonzero(has_positive)]
    thresholds[tuned] = _half_way_down(matrix, last_predicted)[tuned]
    return thresholds


def _best_cuts(ranked: RankedPositives) -> Ints:
    """For each label with a positive, the place in `ranked` below which to cut for the best F1."""
    f1 = 2 * ranked.tied_hits / (ranked.tied_rank + ranked.positives[ranked.group])
    ends = ranked.last_positive()
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)[: len(ends)]
    best = np.repeat(np.maximum.reduceat(f1, starts), ends - starts + 1) if len(ends) else f1
    is_best = np.flatnonzero(f1 == best)
    # The first of equals in each label is the highest threshold.
    return is_best[np.unique(ranked.group[is_best], return_index=True)[1]]


def _half_way_down(scores: Scores, bounds: Scores) -> Scores:
    """Half-way from each label's bound to its next lower score, if any number lies between."""
    lower = np.where(scores < bounds, scores, np.float32(0)).max(axis=0)
    middle = (bounds + lower) / np.float32(2)
    return np.where(middle > lower, middle, bounds)
