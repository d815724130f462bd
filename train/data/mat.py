"""MATLAB version 5 files: one matrix of features and one of 0/1 labels, rows aligned."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from scipy import io as matlab
from scipy import sparse

from train.data.dataset import MultiLabelData
from train.data.files import open_bytes
from train.data.matrices import targets_from_dense
from train.errors import DataError


def read_mat(features: Path, labels: Path, *, name: str) -> MultiLabelData:
    """Read the only numeric matrix of each file; such files name no labels, so we number them.

    Features of which at most a tenth differ from 0 are kept sparse.

    Raises:
        DataError: Not version 5, not exactly one numeric matrix, or labels other than 0 and 1.
    """
    inputs, targets = _matrix(features), _matrix(labels)
    if len(inputs) != len(targets):
        raise DataError(
            f"{features} has {len(inputs)} rows and {labels} has {len(targets)}: "
            f"they must belong together"
        )
    if not np.isin(targets, (0, 1)).all():
        raise DataError(f"{labels} holds values other than 0 and 1: give a matrix of labels")
    inputs = inputs.astype(np.float32)
    is_sparse = np.count_nonzero(inputs) <= inputs.size / 10
    return MultiLabelData(
        name=name,
        inputs=sparse.csr_array(inputs) if is_sparse else inputs,
        targets=targets_from_dense(targets),
        labels=tuple(f"label_{number}" for number in range(targets.shape[1])),
    )


def _matrix(path: Path) -> np.ndarray:
    with open_bytes(path) as file:
        content = io.BytesIO(file.read())
    try:
        variables = matlab.loadmat(content)
    except (ValueError, TypeError, NotImplementedError, matlab.matlab.MatReadError) as error:
        raise DataError(
            f"{path} is not a MATLAB version 5 file ({error}): save it with the option -v5"
        ) from error
    found = [
        value
        for key, value in variables.items()
        if not key.startswith("__") and isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
    ]
    if len(found) != 1 or found[0].ndim != 2:
        raise DataError(
            f"{path} must hold exactly one numeric matrix, not {len(found)}: save one per file"
        )
    return found[0]
