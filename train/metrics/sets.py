"""Set metrics: how well predicted label sets agree with the true ones.

Every metric comes from counts of hits (predicted and true), predicted and true cells, by row and by
label. `Confusion` holds them; count once and ask for as many metrics as needed. What 0/0 means:

- a row with neither a true nor a predicted label: `empty="zero"` counts it as 0 in example-F1, as
  scikit-learn does with `zero_division=0` and SEAL's evaluation does; `empty="skip"` leaves it out
  of the mean, as the evaluations of C-GMVAE, MPVAE and LaMP do;
- a label that is never true and never predicted counts as 0 in macro-F1 (all of them agree), and a
  precision or recall of 0/0 counts as 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from train.errors import DataError
from train.metrics.inputs import (
    Floats,
    Ints,
    LabelSets,
    as_label_sets,
    as_scores,
    cell_numbers,
    check_label_vector,
    check_same_shape,
    contains,
)

EmptyRows = Literal["zero", "skip"]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Cells that are hits, predicted and true, along one axis: one entry for each row or label."""

    hits: Ints
    predicted: Ints
    true: Ints

    def f1(self) -> Floats:
        """F1 of each entry, 0/0 = 0."""
        return ratio(2 * self.hits, self.predicted + self.true)

    def precision(self) -> Floats:
        """Precision of each entry, 0/0 = 0."""
        return ratio(self.hits, self.predicted)

    def recall(self) -> Floats:
        """Recall of each entry, 0/0 = 0."""
        return ratio(self.hits, self.true)

    def iou(self) -> Floats:
        """Hits over what is predicted or true of each entry, 0/0 = 0."""
        return ratio(self.hits, self.predicted + self.true - self.hits)

    def total(self) -> Counts:
        """The counts of all cells together, as one entry."""
        hits, predicted, true = (
            np.atleast_1d(part.sum()) for part in (self.hits, self.predicted, self.true)
        )
        return Counts(hits=hits, predicted=predicted, true=true)


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """The counts behind all set metrics, by row and by label."""

    by_row: Counts
    by_label: Counts

    def example_f1(self, empty: EmptyRows) -> float:
        """Mean F1 of the rows; `empty` says what becomes of rows without any label."""
        scores = self.by_row.f1()
        if empty == "zero":
            return float(scores.mean())
        kept = self.by_row.predicted + self.by_row.true > 0
        if not kept.any():
            raise DataError("no row has a true or predicted label: use empty='zero' or other rows")
        return float(scores[kept].mean())

    def subset_accuracy(self) -> float:
        """Share of rows whose label set is exactly right."""
        rows = self.by_row
        return float(np.mean((rows.hits == rows.true) & (rows.hits == rows.predicted)))

    def hamming_loss(self) -> float:
        """Share of cells that are wrong."""
        total = self.by_row.total()
        wrong = total.predicted + total.true - 2 * total.hits
        return float(wrong[0]) / (len(self.by_row.hits) * len(self.by_label.hits))


def confusion(predicted: LabelSets, targets: LabelSets) -> Confusion:
    """Count hits by row and by label; cost follows the labels set, plus one pass if dense."""
    true = as_label_sets(targets, "targets")
    if sparse.issparse(predicted) or predicted.dtype != np.bool_:
        predicted = as_label_sets(predicted, "predicted")
    check_same_shape(predicted.shape, true, "predicted")
    cells = cell_numbers(true)
    hit_cells = cells[_hits_among(predicted, cells)]
    n_rows, n_labels = true.shape
    return Confusion(
        by_row=Counts(
            hits=np.bincount(hit_cells // n_labels, minlength=n_rows),
            predicted=_count(predicted, axis=1),
            true=_count(true, axis=1),
        ),
        by_label=Counts(
            hits=np.bincount(hit_cells % n_labels, minlength=n_labels),
            predicted=_count(predicted, axis=0),
            true=_count(true, axis=0),
        ),
    )


def predict(
    scores: NDArray[np.floating], thresholds: float | NDArray[np.floating]
) -> NDArray[np.bool_]:
    """Predict each label whose score is at least its threshold, as SEAL does (p >= 0.5).

    thresholds: one for all labels, or (labels,). They are rounded to float32 like the scores, so
    that a score of 0.7 meets a threshold of 0.7. Returns a dense bool matrix (rows, labels).
    """
    matrix = as_scores(scores)
    bounds = np.asarray(thresholds, dtype=np.float32)
    if bounds.ndim:
        check_label_vector(bounds, matrix.shape[1], "thresholds")
    if np.isnan(bounds).any():
        raise DataError("thresholds must be numbers, got NaN: use inf to never predict a label")
    return np.asarray(matrix >= bounds)


def example_f1(predicted: LabelSets, targets: LabelSets, *, empty: EmptyRows = "zero") -> float:
    """F1 of each row, averaged over rows; see the module for `empty`."""
    return confusion(predicted, targets).example_f1(empty)


def micro_f1(predicted: LabelSets, targets: LabelSets) -> float:
    """F1 of all cells together; 0 when nothing is true or predicted."""
    return float(confusion(predicted, targets).by_label.total().f1()[0])


def micro_precision(predicted: LabelSets, targets: LabelSets) -> float:
    """Share of predicted cells that are true; 0 when nothing is predicted."""
    return float(confusion(predicted, targets).by_label.total().precision()[0])


def micro_recall(predicted: LabelSets, targets: LabelSets) -> float:
    """Share of true cells that are predicted; 0 when nothing is true."""
    return float(confusion(predicted, targets).by_label.total().recall()[0])


def macro_f1(predicted: LabelSets, targets: LabelSets) -> float:
    """F1 of each label, averaged over all labels, unused ones counting 0."""
    return float(confusion(predicted, targets).by_label.f1().mean())


def macro_precision(predicted: LabelSets, targets: LabelSets) -> float:
    """Precision of each label, averaged over all labels; 0 for one never predicted."""
    return float(confusion(predicted, targets).by_label.precision().mean())


def macro_recall(predicted: LabelSets, targets: LabelSets) -> float:
    """Recall of each label, averaged over all labels; 0 for one never true."""
    return float(confusion(predicted, targets).by_label.recall().mean())


def mean_iou(predicted: LabelSets, targets: LabelSets) -> float:
    """Intersection over union of each row, averaged over rows; 0 where both are empty."""
    return float(confusion(predicted, targets).by_row.iou().mean())


def global_iou(predicted: LabelSets, targets: LabelSets) -> float:
    """Intersection over union of all cells together."""
    return float(confusion(predicted, targets).by_row.total().iou()[0])


def subset_accuracy(predicted: LabelSets, targets: LabelSets) -> float:
    """Share of rows whose label set is exactly right; an empty set can be right."""
    return confusion(predicted, targets).subset_accuracy()


def hamming_loss(predicted: LabelSets, targets: LabelSets) -> float:
    """Share of wrong cells among rows x labels."""
    return confusion(predicted, targets).hamming_loss()


def hamming_accuracy(predicted: LabelSets, targets: LabelSets) -> float:
    """Share of right cells among rows x labels: 1 - Hamming loss."""
    return 1 - hamming_loss(predicted, targets)


def ratio(numerator: NDArray[np.number], denominator: NDArray[np.number]) -> Floats:
    """Divide entry by entry with 0/0 = 0."""
    out = np.zeros(np.broadcast_shapes(numerator.shape, denominator.shape))
    return np.asarray(np.divide(numerator, denominator, out=out, where=denominator != 0))


def _hits_among(predicted: LabelSets, true_cells: Ints) -> NDArray[np.bool_]:
    if sparse.issparse(predicted):
        return contains(cell_numbers(predicted), true_cells)
    return np.asarray(predicted).ravel()[true_cells]


def _count(cells: LabelSets, axis: int) -> Ints:
    if isinstance(cells, np.ndarray):
        return np.asarray(np.count_nonzero(cells, axis=axis))
    if axis == 1:
        return np.asarray(np.diff(cells.indptr), dtype=np.int64)
    return np.bincount(cells.indices, minlength=cells.shape[1])
