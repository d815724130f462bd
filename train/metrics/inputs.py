"""Check and normalise what the metrics are given, so that the formulas never meet a bad array."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from train.errors import DataError

LabelSets: TypeAlias = NDArray[np.bool_] | sparse.csr_array
Scores = NDArray[np.float32]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def as_scores(scores: NDArray[np.floating]) -> Scores:
    """Scores as a (rows, labels) float32 matrix without NaN; all comparisons are in float32."""
    array = np.asarray(scores, dtype=np.float32)
    _check_matrix(array.shape, "scores")
    # A maximum is NaN if any cell is, and needs no matrix of flags.
    if np.isnan(array.max()):
        raise DataError(
            "scores must be numbers, got NaN: the model diverged or its input holds NaN"
        )
    return array


def as_unit_scores(scores: NDArray[np.floating]) -> Scores:
    """Scores as `as_scores` gives them, all in [0, 1]; logits are refused, not squashed."""
    array = as_scores(scores)
    low, high = float(array.min()), float(array.max())
    if low < 0 or high > 1:
        raise DataError(
            f"scores must lie in [0, 1], got {low:g} to {high:g}: apply the sigmoid to logits first"
        )
    return array


def as_label_sets(cells: LabelSets, name: str) -> sparse.csr_array:
    """Label sets as a canonical CSR: sorted indices, no duplicates, every stored cell 1."""
    if not sparse.issparse(cells):
        return _dense_to_csr(np.asarray(cells), name)
    matrix = sparse.csr_array(cells)
    _check_matrix(matrix.shape, name)
    _check_binary(matrix.data, name)
    if not (matrix.has_canonical_format and matrix.data.all()):
        matrix = matrix.copy()
        matrix.eliminate_zeros()
        matrix.sum_duplicates()
        matrix.data[:] = 1
    return matrix


def check_same_shape(shape: tuple[int, ...], targets: sparse.csr_array, name: str) -> None:
    """Refuse two matrices that do not describe the same rows and labels."""
    if tuple(shape) != tuple(targets.shape):
        raise DataError(
            f"{name} has shape {tuple(shape)} but targets has {tuple(targets.shape)}: "
            "both need one line a row and one column a label"
        )


def check_label_vector(values: NDArray[np.generic], n_labels: int, name: str) -> None:
    """Refuse a vector that does not have one entry for each label."""
    if values.shape != (n_labels,):
        raise DataError(f"{name} needs one entry for each of {n_labels} labels, got {values.shape}")


def check_any_positive(targets: sparse.csr_array, metric: str) -> None:
    """Refuse targets without any label, for which the named metric is 0/0."""
    if targets.nnz == 0:
        raise DataError(
            f"{metric} is undefined on targets without any label: give rows that have labels"
        )


def cell_numbers(matrix: sparse.csr_array) -> Ints:
    """Number `row * labels + label` of each stored cell, ascending."""
    n_rows, n_labels = matrix.shape
    starts = np.arange(n_rows, dtype=np.int64) * n_labels
    return np.asarray(np.repeat(starts, np.diff(matrix.indptr)) + matrix.indices)


def contains(sorted_numbers: Ints, queries: Ints) -> NDArray[np.bool_]:
    """Tell for each query whether it is among the sorted numbers, in the shape of the queries."""
    if not sorted_numbers.size:
        return np.zeros(queries.shape, dtype=bool)
    places = np.searchsorted(sorted_numbers, queries)
    found = sorted_numbers[np.minimum(places, sorted_numbers.size - 1)]
    return np.asarray(found == queries)


def _dense_to_csr(cells: NDArray[np.generic], name: str) -> sparse.csr_array:
    _check_matrix(cells.shape, name)
    _check_binary(cells, name)
    rows, labels = np.nonzero(cells)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=cells.shape[0]))])
    ones = np.ones(len(labels), dtype=np.uint8)
    return sparse.csr_array((ones, labels, indptr), shape=cells.shape)


def _check_matrix(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2 or 0 in shape:
        raise DataError(
            f"{name} must be a matrix with at least one row and one label, got shape {shape}"
        )


def _check_binary(cells: NDArray[np.generic], name: str) -> None:
    if cells.dtype != np.bool_ and not ((cells == 0) | (cells == 1)).all():
        raise DataError(
            f"{name} must hold only 0 and 1: turn scores into label sets with predict() first"
        )
