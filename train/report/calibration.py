"""Whether scores mean what they say: of cells scored 0.3, are three in ten true?

Test rows and bins of equal width, as in the metric `calibration_error` (docs/metrics.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from train.report.runs import FinishedRun
from train.report.tables import Column, Row, Table

Floats = NDArray[np.float64]
BINS = 15
FEWEST_TRUE = 10
"""Test rows that a label must have: the bins of a rarer one hold next to nothing."""
SHOWN_LABELS = 15


@dataclass(frozen=True)
class Reliability:
    """What is in each bin of scores; any shape that ends in BINS."""

    cells: NDArray[np.int64]
    score_sums: Floats
    true: NDArray[np.int64]

    def mean_scores(self) -> Floats:
        """Of each bin; NaN where it is empty."""
        return _ratio(self.score_sums, self.cells)

    def true_shares(self) -> Floats:
        """Of each bin; NaN where it is empty."""
        return _ratio(self.true, self.cells)

    def error(self) -> Floats:
        """Expected calibration error, over the bins."""
        gaps = np.abs(self.score_sums - self.true).sum(axis=-1)
        return np.asarray(gaps / self.cells.sum(axis=-1))

    def excess(self) -> Floats:
        """Mean score less share of true cells: above 0 where scores promise too much."""
        gap = (self.score_sums - self.true).sum(axis=-1)
        return np.asarray(gap / self.cells.sum(axis=-1))

    def of_all_labels(self) -> Reliability:
        """The labels' bins added up."""
        return Reliability(*(part.sum(axis=0) for part in vars(self).values()))


def reliability(scores: NDArray[np.floating], targets: sparse.csr_array) -> Reliability:
    """Bins of each label, (labels, BINS), from scores (rows, labels) in [0, 1]."""
    n_labels = scores.shape[1]
    bins = np.minimum((scores * np.float32(BINS)).astype(np.int64), BINS - 1)
    places = (bins + BINS * np.arange(n_labels)).ravel()
    cells = np.bincount(places, minlength=n_labels * BINS)
    weights = scores.ravel().astype(np.float64)
    sums = np.asarray(np.bincount(places, weights, n_labels * BINS), np.float64)
    true = targets.tocoo()
    hits = np.bincount(places[true.row * n_labels + true.col], minlength=n_labels * BINS)
    shape = (n_labels, BINS)
    return Reliability(cells.reshape(shape), sums.reshape(shape), hits.reshape(shape))


def of_run(run: FinishedRun) -> Reliability:
    """Bins of each label on the test rows of a run."""
    return reliability(run.test_scores, run.true)


def calibration_table(runs: Sequence[FinishedRun]) -> Table:
    """How far the scores of each run are from shares of true cells."""
    rows: list[Row] = []
    for run in runs:
        by_label = of_run(run)
        pooled = by_label.of_all_labels()
        often = by_label.true.sum(axis=1) >= FEWEST_TRUE
        rows.append(
            [run.name, float(pooled.error()), float(pooled.excess()), _brier(run),
             float(by_label.error()[often].mean()) if often.any() else None, int(often.sum())]
        )  # fmt: skip
    return Table(
        "calibration",
        [Column("run"), Column("ECE", ".4f"), Column("mean score - share true", "+.4f"),
         Column("Brier score", ".4f"), Column("ECE of a label, mean", ".4f"),
         Column("labels in it", ",d")],
        rows,
        f"lower is better but for the second number, which is best at 0; ECE over all cells in "
        f"{BINS} bins, most of which are confident negatives where labels are many; the mean is "
        f"over labels with {FEWEST_TRUE} true test rows or more",
    )  # fmt: skip


def label_calibration_table(run: FinishedRun) -> Table | None:
    """The labels whose scores are furthest from shares of true rows; None if all are too rare."""
    by_label = of_run(run)
    true, n_rows = by_label.true.sum(axis=1), by_label.cells.sum(axis=1)
    error, excess = by_label.error(), by_label.excess()
    often = np.flatnonzero(true >= FEWEST_TRUE)
    worst = often[np.argsort(-error[often], kind="stable")][:SHOWN_LABELS]
    if not len(worst):
        return None
    return Table(
        "labels that are calibrated worst",
        [Column("label"), Column("test rows", ",d"), Column("share true", ".3f"),
         Column("mean score", ".3f"), Column("ECE", ".3f")],
        [[run.checkpoint.labels[i], int(true[i]), float(true[i] / n_rows[i]),
          float(excess[i] + true[i] / n_rows[i]), float(error[i])] for i in worst],
        f"of the {len(often):,} labels with {FEWEST_TRUE} true test rows or more",
        folded=True,
    )  # fmt: skip


def _brier(run: FinishedRun) -> float:
    """Mean over cells of (score - truth)^2, without a dense matrix of truths."""
    scores = np.asarray(run.test_scores, np.float64)
    true = run.true.tocoo()
    of_true = scores[true.row, true.col]
    return float((np.sum(scores**2) - 2 * of_true.sum() + len(of_true)) / scores.size)


def _ratio(values: NDArray[np.number], cells: NDArray[np.int64]) -> Floats:
    return np.where(cells > 0, values / np.maximum(cells, 1), np.nan)
