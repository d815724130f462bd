"""The complete set of metrics of one model on one set of rows, from two sorts and one count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from train.errors import DataError
from train.metrics.at_k import TopHits
from train.metrics.calibration import calibration_error_of
from train.metrics.inputs import (
    Floats,
    LabelSets,
    as_label_sets,
    as_unit_scores,
    check_any_positive,
    check_label_vector,
    check_same_shape,
)
from train.metrics.order import RankedPositives, rank_positives
from train.metrics.ranking import (
    coverage_error_of,
    lrap_of,
    mean_average_precision_of,
    rank_rows,
    ranking_loss_of,
)
from train.metrics.sets import Confusion, confusion, predict
from train.metrics.slices import slices_by_count, slices_by_quantile

KS = (1, 3, 5, 10, 50)
"""Cut-offs of the metrics at k."""


def evaluate(
    scores: NDArray[np.floating],
    targets: LabelSets,
    *,
    thresholds: float | NDArray[np.floating],
    train_counts: NDArray[np.integer] | None = None,
    propensity: Floats | None = None,
    ks: Sequence[int] = KS,
) -> dict[str, float]:
    """Compute every metric of this package at once; each equals its own function.

    scores: (rows, labels) in [0, 1]; targets: the same shape, with at least one label set.
    thresholds: one for all labels, or (labels,), chosen on other rows than these.
    train_counts: (labels,) training rows of each label; adds the keys of the slices,
        `macro_f1_head`, `map_by_label_tail`, `balanced_error_torso`... by count and
        `pair_recall@5_quantile_head`... by quantile. A slice in which nothing can be measured has
        no key.
    propensity: (labels,) from `propensities`; adds `psp@k`.
    ks: cut-offs of the metrics at k; those above the number of labels are left out.
    """
    matrix, true = as_unit_scores(scores), as_label_sets(targets, "targets")
    check_same_shape(matrix.shape, true, "scores")
    check_any_positive(true, "evaluate")
    ks = usable(ks, true.shape[1])
    sets = confusion(predict(matrix, thresholds), true)
    by_row, by_label = (
        rank_positives(matrix, true, keep=max([1, *ks])),
        rank_rows(matrix, true),
    )
    top = TopHits(ranked=by_row.top, hits=by_row.top_hits, targets=true)
    values = set_metrics(sets) | _ranking_metrics(by_row, by_label)
    values["coverage_error"] = coverage_error_of(matrix, true)
    values["calibration_error"] = calibration_error_of(matrix, true)
    values |= metrics_at_k(top, ks, propensity) | pair_metrics(top, ks)
    if train_counts is not None:
        check_label_vector(np.asarray(train_counts), true.shape[1], "train_counts")
        values |= _count_slices(sets, by_label, top, train_counts)
        values |= quantile_slices(top, ks, train_counts)
    return values


def set_metrics(sets: Confusion) -> dict[str, float]:
    """Every metric of predicted label sets."""
    labels, total = sets.by_label, sets.by_label.total()
    return {
        "example_f1": sets.example_f1("zero"),
        "example_f1_skip_empty": sets.example_f1("skip"),
        "micro_f1": float(total.f1()[0]),
        "micro_precision": float(total.precision()[0]),
        "micro_recall": float(total.recall()[0]),
        "macro_f1": float(labels.f1().mean()),
        "macro_precision": float(labels.precision().mean()),
        "macro_recall": float(labels.recall().mean()),
        "hamming_accuracy": 1 - sets.hamming_loss(),
        "subset_accuracy": sets.subset_accuracy(),
    }


def _ranking_metrics(by_row: RankedPositives, by_label: RankedPositives) -> dict[str, float]:
    return {
        "map_by_label": mean_average_precision_of(by_label),
        "map_by_row": mean_average_precision_of(by_row),
        "lrap": lrap_of(by_row),
        "ranking_loss": ranking_loss_of(by_row),
    }


def metrics_at_k(top: TopHits, ks: Sequence[int], propensity: Floats | None) -> dict[str, float]:
    """Every metric of the k best labels, for each k."""
    values = {f"precision@{k}": top.precision(k) for k in ks}
    values |= {f"recall@{k}": top.recall(k) for k in ks}
    values |= {f"ndcg@{k}": top.ndcg(k) for k in ks}
    if propensity is not None:
        check_label_vector(propensity, top.targets.shape[1], "propensity")
        values |= {f"psp@{k}": top.psp(k, propensity) for k in ks}
    return values


def pair_metrics(top: TopHits, ks: Sequence[int]) -> dict[str, float]:
    """Metrics of the (row, true label) pairs: as many tasks with one right answer each."""
    every = np.ones(top.targets.shape[1], dtype=bool)
    present = np.bincount(top.targets.indices, minlength=len(every)) > 0
    values = {"balanced_error": float(1 - top.label_recall(1)[present].mean())}
    return values | {f"pair_recall@{k}": top.pair_recall(k, every) for k in ks}


def _count_slices(
    sets: Confusion, by_label: RankedPositives, top: TopHits, train_counts: NDArray[np.integer]
) -> dict[str, float]:
    f1, precision, first = sets.by_label.f1(), by_label.average_precision(), top.label_recall(1)
    values = {}
    for name, labels in slices_by_count(train_counts).items():
        ranked = labels & (by_label.positives > 0)
        if labels.any():
            values[f"macro_f1_{name}"] = float(f1[labels].mean())
        if ranked.any():
            values[f"map_by_label_{name}"] = float(precision[ranked].mean())
            values[f"balanced_error_{name}"] = float(1 - first[ranked].mean())
    return values


def quantile_slices(
    top: TopHits, ks: Sequence[int], train_counts: NDArray[np.integer]
) -> dict[str, float]:
    """Recall of the pairs of each slice of labels, for each k."""
    return {
        f"pair_recall@{k}_quantile_{name}": top.pair_recall(k, labels)
        for name, labels in slices_by_quantile(train_counts).items()
        if labels[top.targets.indices].any()
        for k in ks
    }


def usable(ks: Sequence[int], n_labels: int) -> list[int]:
    """Those of the cut-offs that there are labels for."""
    if any(k < 1 for k in ks):
        raise DataError(f"ks must be at least 1, got {list(ks)}")
    return [k for k in ks if k <= n_labels]
