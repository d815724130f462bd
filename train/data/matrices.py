"""Target matrices from coordinates or from a dense table of 0 and 1."""

from __future__ import annotations

import numpy as np
from scipy import sparse


def targets_at(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> sparse.csr_array:
    """CSR of uint8, sorted, with 1 at each (row, column); a pair given twice counts once."""
    ones = np.ones(len(rows), dtype=np.uint8)
    matrix = sparse.csr_array((ones, (rows, columns)), shape=shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def targets_from_dense(dense: np.ndarray) -> sparse.csr_array:
    """CSR of uint8 with 1 wherever a dense (rows, labels) matrix is not zero."""
    rows, columns = np.nonzero(dense)
    return targets_at(rows, columns, (dense.shape[0], dense.shape[1]))


def row_numbers(indptr: np.ndarray) -> np.ndarray:
    """The row of each entry of a CSR matrix."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
