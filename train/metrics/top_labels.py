"""Metrics where labels are too many for a score of each: from the best labels of every row.

A label outside a row's list counts as not predicted, whatever the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from train.errors import DataError
from train.metrics.at_k import look_up
from train.metrics.inputs import (
    Floats,
    Ints,
    LabelSets,
    Scores,
    as_label_sets,
    check_any_positive,
    check_label_vector,
)
from train.metrics.sets import confusion
from train.metrics.slices import slices_by_count
from train.metrics.suite import (
    KS,
    metrics_at_k,
    pair_metrics,
    quantile_slices,
    set_metrics,
    usable,
)


@dataclass(frozen=True, kw_only=True)
class TopLabels:
    """The best labels of each row, best first, with their scores."""

    ranked: Ints
    """(rows, k) label numbers, each at most once a row."""
    scores: Scores
    """(rows, k), falling along each row."""
    n_labels: int

    def __post_init__(self) -> None:
        if self.ranked.shape != self.scores.shape or self.ranked.ndim != 2:
            raise DataError(
                f"every ranked label needs its score, got shapes {self.ranked.shape} and "
                f"{self.scores.shape}"
            )

    def predict(self, thresholds: float | NDArray[np.floating]) -> sparse.csr_array:
        """Predict each listed label whose score is at least its threshold: (rows, labels) CSR.

        thresholds: one for all labels, or (labels,); rounded to float32 like the scores.
        """
        bounds = np.asarray(thresholds, dtype=np.float32)
        if bounds.ndim:
            check_label_vector(bounds, self.n_labels, "thresholds")
            bounds = bounds[self.ranked]
        kept = self.scores >= bounds
        starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        ones = np.ones(int(starts[-1]), dtype=np.uint8)
        cells = sparse.csr_array(
            (ones, self.ranked[kept], starts), shape=(len(self.ranked), self.n_labels)
        )
        cells.sort_indices()
        return cells


def evaluate_top(
    top: TopLabels,
    targets: LabelSets,
    *,
    thresholds: float | NDArray[np.floating],
    train_counts: NDArray[np.integer],
    propensity: Floats,
    ks: Sequence[int] = KS,
) -> dict[str, float]:
    """Compute what `evaluate` does, under the same names, as far as lists allow.

    Left out are the metrics that need a score of every label: those of ranks, of calibration, and
    average precision. Arguments are those of `evaluate`.
    """
    true = as_label_sets(targets, "targets")
    check_any_positive(true, "evaluate_top")
    ks = usable(ks, top.ranked.shape[1])
    sets = confusion(top.predict(thresholds), true)
    hits = look_up(top.ranked, true, max(ks, default=1))
    values = set_metrics(sets) | metrics_at_k(hits, ks, propensity) | pair_metrics(hits, ks)
    f1, first = sets.by_label.f1(), hits.label_recall(1)
    present = np.bincount(true.indices, minlength=true.shape[1]) > 0
    for name, labels in slices_by_count(train_counts).items():
        if labels.any():
            values[f"macro_f1_{name}"] = float(f1[labels].mean())
        if (labels & present).any():
            values[f"balanced_error_{name}"] = float(1 - first[labels & present].mean())
    return values | quantile_slices(hits, ks, train_counts)


def best_cuts(top: TopLabels, targets: sparse.csr_array) -> tuple[Ints, Scores]:
    """Find for each listed label the threshold with the best F1 on these rows.

    The labels that have a cut worth making, ascending, and their thresholds: half-way between the
    last score that is predicted and the next lower one of the label's list, 0 below the lowest. Of
    equally good cuts the highest is taken; tied scores are never separated.
    """
    labels, scores = top.ranked.ravel(), top.scores.ravel()
    hits = look_up(top.ranked, targets, top.ranked.shape[1]).hits.ravel()
    order = np.lexsort((-scores, labels))
    labels, scores, hits = labels[order], scores[order], hits[order]
    found, starts, sizes = np.unique(labels, return_index=True, return_counts=True)
    so_far: Ints = np.cumsum(hits)
    rank = np.arange(1, len(labels) + 1) - np.repeat(starts, sizes)
    gained = so_far - np.repeat(so_far[starts] - hits[starts], sizes)
    positives = np.bincount(targets.indices, minlength=top.n_labels)
    f1 = 2 * gained / (rank + positives[labels])
    ends_label = np.append(labels[1:] != labels[:-1], True)
    below = np.where(ends_label, np.float32(0), np.append(scores[1:], np.float32(0)))
    # Inside a tie there is no cut.
    f1[(below == scores) & ~ends_label] = -1
    best = np.maximum.reduceat(f1, starts)
    is_best = np.flatnonzero(f1 == np.repeat(best, sizes))
    cut = is_best[np.unique(labels[is_best], return_index=True)[1]]
    middle = ((scores[cut] + below[cut]) / 2).astype(np.float32)
    # Between neighbouring numbers there is none: then the score itself.
    middle = np.where(middle > below[cut], middle, scores[cut])
    useful = best > 0
    return found[useful], middle[useful]
