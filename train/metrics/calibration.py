"""Calibration: whether cells with a score of 0.3 are true three times in ten."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from train.errors import DataError
from train.metrics.inputs import (
    LabelSets,
    Scores,
    as_label_sets,
    as_unit_scores,
    cell_numbers,
    check_same_shape,
)

_BLOCK_CELLS = 1 << 17


def calibration_error(scores: NDArray[np.floating], targets: LabelSets, *, bins: int = 15) -> float:
    """Expected calibration error over all cells, rows x labels, in bins of equal width.

    The sum over bins of `cells in bin / all cells * |mean score in bin - share of true in bin|`. A
    score s falls into bin `floor(bins * s)`, computed in float32, and 1 into the last bin. Most
    cells of a wide label set are confident negatives, so compare the value between models of one
    data set only.
    """
    matrix, true = as_unit_scores(scores), as_label_sets(targets, "targets")
    check_same_shape(matrix.shape, true, "scores")
    if bins < 1:
        raise DataError(f"bins must be at least 1, got {bins}")
    return calibration_error_of(matrix, true, bins)


def calibration_error_of(scores: Scores, targets: sparse.csr_array, bins: int = 15) -> float:
    """Calibration error of inputs already checked."""
    # Cells in bin / all cells times a difference of means is a difference of sums / all cells.
    flat = scores.reshape(-1)
    score_sums = np.zeros(bins)
    for start in range(0, flat.size, _BLOCK_CELLS):
        block = flat[start : start + _BLOCK_CELLS]
        score_sums += np.bincount(_bin(block, bins), weights=block, minlength=bins)
    true_bins = _bin(flat[cell_numbers(targets)], bins)
    return float(np.abs(score_sums - np.bincount(true_bins, minlength=bins)).sum() / flat.size)


def _bin(scores: Scores, bins: int) -> NDArray[np.intp]:
    return np.minimum((scores * np.float32(bins)).astype(np.intp), bins - 1)
