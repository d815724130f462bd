"""Arrays in a .npz file: `x` and `y`, dense or as the three arrays of a CSR matrix each."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy import sparse

from train.archives import ArchiveError, read_arrays
from train.data.dataset import MultiLabelData
from train.data.files import bare_stem, read_bytes
from train.data.matrices import row_numbers, targets_at, targets_from_dense
from train.errors import DataError

_PARTS = ("data", "indices", "indptr", "shape")

Arrays = Mapping[str, np.ndarray]


def read_npz(path: Path, *, name: str | None = None) -> MultiLabelData:
    """Read `x` (rows, features) and `y` (rows, labels) of 0 and 1; nothing is ever unpickled.

    Each is one dense array or `x_data`, `x_indices`, `x_indptr`, `x_shape`. Optional: `labels` and
    `features`, arrays of names; labels without names are numbered from 0.
    """
    arrays = _load(path)
    inputs = _read_matrix(path, arrays, "x")
    targets = _read_targets(path, _read_matrix(path, arrays, "y"))
    if inputs.shape[0] != targets.shape[0]:
        raise DataError(f"{path}: x has {inputs.shape[0]} rows but y has {targets.shape[0]}")
    n_labels, n_features = targets.shape[1], inputs.shape[1]
    labels = _read_names(path, arrays, "labels", n_labels)
    return MultiLabelData(
        name=name or bare_stem(path),
        inputs=inputs,
        targets=targets,
        labels=labels or tuple(str(number) for number in range(n_labels)),
        features=_read_names(path, arrays, "features", n_features),
    )


def _load(path: Path) -> Arrays:
    content = io.BytesIO(read_bytes(path))
    if not zipfile.is_zipfile(content):
        raise DataError(f"{path} is not a .npz file: write it with numpy.savez_compressed")
    content.seek(0)
    try:
        return read_arrays(content)
    except ArchiveError as error:
        raise DataError(
            f"{path} is refused: {error}; write it again, a table of mostly zeros as a CSR matrix "
            "or with numpy.savez"
        ) from error
    except OSError as error:
        raise DataError(f"{path} is damaged ({error}): write it again") from error


def _read_matrix(path: Path, arrays: Arrays, key: str) -> np.ndarray | sparse.csr_array:
    """A (rows, columns) float32 matrix, dense or CSR, all of it finite."""
    parts = [f"{key}_{part}" for part in _PARTS]
    if key in arrays:
        matrix = _require_numbers(path, key, arrays[key])
        if matrix.ndim != 2:
            raise DataError(f"{path}: {key} must be (rows, columns), got shape {matrix.shape}")
        return matrix
    missing = [part for part in parts if part not in arrays]
    if missing:
        raise DataError(
            f"{path} must hold {key!r}, or {', '.join(parts)}: {missing[0]!r} is missing; "
            f"it holds {', '.join(sorted(arrays)) or 'nothing'}"
        )
    data, indices, indptr, shape = (arrays[part] for part in parts)
    return _csr(path, key, (_require_numbers(path, parts[0], data), indices, indptr), shape)


def _csr(
    path: Path, key: str, parts: tuple[np.ndarray, np.ndarray, np.ndarray], shape: np.ndarray
) -> sparse.csr_array:
    try:
        matrix = sparse.csr_array(parts, shape=tuple(int(size) for size in shape))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: the arrays of {key} are no CSR matrix ({error})") from error
    n_entries = matrix.nnz
    matrix.sum_duplicates()
    if matrix.nnz != n_entries:
        raise DataError(f"{path}: {key} gives an entry twice: sum or drop the repeated ones")
    matrix.eliminate_zeros()
    return matrix


def _require_numbers(path: Path, key: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "biuf":
        raise DataError(f"{path}: {key} must hold numbers, got {array.dtype}")
    if not np.isfinite(array).all():
        raise DataError(f"{path}: {key} holds NaN or infinity: fill or drop such values")
    return array.astype(np.float32)


def _read_targets(path: Path, matrix: np.ndarray | sparse.csr_array) -> sparse.csr_array:
    values = matrix if isinstance(matrix, np.ndarray) else matrix.data
    bad = values[(values != 0) & (values != 1)]
    if bad.size:
        raise DataError(f"{path}: y must hold 0 and 1 only, got {bad.flat[0]}")
    if isinstance(matrix, np.ndarray):
        return targets_from_dense(matrix)
    return targets_at(row_numbers(matrix.indptr), matrix.indices, matrix.shape)


def _read_names(path: Path, arrays: Arrays, key: str, expected: int) -> tuple[str, ...]:
    if key not in arrays:
        return ()
    names = arrays[key]
    if names.shape != (expected,) or names.dtype.kind != "U":
        raise DataError(
            f"{path}: {key} must be {expected} names, an array of str, got {names.dtype} of shape "
            f"{names.shape}"
        )
    return tuple(str(name) for name in names)
