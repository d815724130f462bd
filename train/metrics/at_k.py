"""Metrics of the k best labels of each row. No (rows, labels) matrix is needed or made.

`ranked` is (rows, at least k) label numbers, best first, each label at most once a row, as `top_k`
or an index search gives them; -1 stands for a place that was left empty and never hits. Memory and
time follow rows x k and the number of true labels, not rows x labels.

A row without true labels counts 0 in precision, recall and nDCG (napkinXC with `zero_division=0`,
scikit-learn's nDCG). nDCG has binary gains and the discount log2(place + 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from train.errors import DataError
from train.metrics.inputs import (
    Floats,
    Ints,
    LabelSets,
    as_label_sets,
    cell_numbers,
    check_any_positive,
    check_label_vector,
    contains,
)
from train.metrics.sets import ratio


@dataclass(frozen=True, kw_only=True)
class TopHits:
    """The best labels of each row and their truth, looked up once for all metrics."""

    ranked: Ints
    """(rows, k) labels, best first."""
    hits: NDArray[np.bool_]
    """(rows, k) whether they are true."""
    targets: sparse.csr_array

    def precision(self, k: int) -> float:
        """Mean share of true labels among the first k."""
        return float(np.count_nonzero(self.hits[:, :k]) / (len(self.hits) * k))

    def recall(self, k: int) -> float:
        """Mean share of a row's true labels found among the first k."""
        found = np.count_nonzero(self.hits[:, :k], axis=1)
        return float(ratio(found, np.diff(self.targets.indptr)).mean())

    def ndcg(self, k: int) -> float:
        """Mean discounted gain of the first k over the best attainable one."""
        discounts = 1 / np.log2(np.arange(2, k + 2))
        best = np.concatenate([[0.0], np.cumsum(discounts)])
        attainable = best[np.minimum(np.diff(self.targets.indptr), k)]
        return float(ratio(self.hits[:, :k] @ discounts, attainable).mean())

    def psp(self, k: int, propensity: Floats) -> float:
        """Propensity-weighted gain of the first k of all rows over the best attainable one."""
        weights = 1 / propensity
        gained = weights[self.ranked[:, :k][self.hits[:, :k]]].sum()
        return float(gained / _best_gain(self.targets, weights, k))

    def pair_recall(self, k: int, labels: NDArray[np.bool_]) -> float:
        """Share of the (row, true label) pairs of a slice of labels that are in the first k."""
        found = np.count_nonzero(labels[self.ranked[:, :k][self.hits[:, :k]]])
        return float(found / np.count_nonzero(labels[self.targets.indices]))

    def label_recall(self, k: int) -> Floats:
        """For each label, the share of its rows that have it in the first k; 0/0 = 0: (labels,)."""
        n_labels = self.targets.shape[1]
        found = np.bincount(self.ranked[:, :k][self.hits[:, :k]], minlength=n_labels)
        return ratio(found, np.bincount(self.targets.indices, minlength=n_labels))


def precision_at_k(ranked: Ints, targets: LabelSets, *, k: int) -> float:
    """Share of true labels among the k best of a row, mean over rows; always divided by k."""
    return look_up(ranked, targets, k).precision(k)


def recall_at_k(ranked: Ints, targets: LabelSets, *, k: int) -> float:
    """Share of a row's true labels that are among its k best, mean over rows."""
    return look_up(ranked, targets, k).recall(k)


def ndcg_at_k(ranked: Ints, targets: LabelSets, *, k: int) -> float:
    """Normalised discounted cumulative gain of the k best, mean over rows."""
    return look_up(ranked, targets, k).ndcg(k)


def psp_at_k(ranked: Ints, targets: LabelSets, propensity: Floats, *, k: int) -> float:
    """Propensity-scored precision (Jain et al., KDD 2016), normalised by the best attainable value.

    A ratio of two sums over rows, not a mean of ratios. propensity: (labels,), see `propensities`.
    """
    top = look_up(ranked, targets, k)
    check_label_vector(propensity, top.targets.shape[1], "propensity")
    check_any_positive(top.targets, "psp_at_k")
    return top.psp(k, propensity)


def pair_recall_at_k(
    ranked: Ints, targets: LabelSets, *, k: int, labels: NDArray[np.bool_] | None = None
) -> float:
    """Share of (row, true label) pairs whose label is among the row's k best; pairs weigh alike.

    This is recall@k on data reduced to one label a row. labels: (labels,) mask of the slice whose
    pairs count; all when None.
    """
    top = look_up(ranked, targets, k)
    mask = np.ones(top.targets.shape[1], dtype=bool) if labels is None else np.asarray(labels)
    check_label_vector(mask, top.targets.shape[1], "labels")
    if not mask[top.targets.indices].any():
        raise DataError("no row has a label of the slice: choose another slice or other rows")
    return top.pair_recall(k, mask)


def look_up(ranked: Ints, targets: LabelSets, k: int) -> TopHits:
    """Find which of the ranked labels are true, checking that there are k of them."""
    true = as_label_sets(targets, "targets")
    labels = np.asarray(ranked)
    _check_ranked(labels, true, k)
    starts = np.arange(len(labels), dtype=np.int64)[:, None] * true.shape[1]
    # An empty place, -1, would otherwise be read as the last label of the row before.
    hits = contains(cell_numbers(true), starts + labels) & (labels >= 0)
    return TopHits(ranked=labels, hits=hits, targets=true)


def _check_ranked(ranked: Ints, targets: sparse.csr_array, k: int) -> None:
    n_rows, n_labels = targets.shape
    if ranked.ndim != 2 or len(ranked) != n_rows or not np.issubdtype(ranked.dtype, np.integer):
        raise DataError(
            f"ranked must hold label numbers for each of the {n_rows} rows of targets, "
            f"got {ranked.dtype} of shape {ranked.shape}: rank scores with top_k() first"
        )
    if not 1 <= k <= ranked.shape[1]:
        raise DataError(f"k must be between 1 and the {ranked.shape[1]} ranked labels, got {k}")
    if ranked.min() < -1 or ranked.max() >= n_labels:
        raise DataError(
            f"ranked must hold label numbers below {n_labels} or -1, "
            f"got {ranked.min()} to {ranked.max()}"
        )


def _best_gain(targets: sparse.csr_array, weights: Floats, k: int) -> float:
    """Sum over rows of the k heaviest true labels."""
    order = np.argsort(-weights, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    sizes = np.diff(targets.indptr)
    first_cell = np.repeat(np.arange(len(sizes), dtype=np.int64) * len(order), sizes)
    # Numbered by weight instead of by label, one flat sort puts the heaviest of each row first.
    by_weight = np.sort(first_cell + place[targets.indices]) - first_cell
    nth_of_row = np.arange(targets.nnz) - np.repeat(targets.indptr[:-1], sizes)
    return float(weights[order[by_weight[nth_of_row < k]]].sum())
