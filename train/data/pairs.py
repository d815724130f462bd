"""Headerless CSV files in pairs: X holds the features, Y the 0/1 labels, rows aligned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from train.data.assemble import stack_parts
from train.data.dataset import MultiLabelData
from train.data.files import open_text
from train.data.matrices import targets_from_dense
from train.errors import DataError


def read_pairs(parts: Mapping[str, tuple[Path, Path]], *, name: str) -> MultiLabelData:
    """Read (X file, Y file) of each part; the files name no columns, so we number them.

    Raises:
        DataError: A cell is no finite number, a label neither 0 nor 1, or the rows do not match.
    """
    return stack_parts({part: _part(x, y, name) for part, (x, y) in parts.items()}, name)


def _part(x_path: Path, y_path: Path, name: str) -> MultiLabelData:
    inputs, targets = _numbers(x_path), _numbers(y_path)
    if len(inputs) != len(targets):
        raise DataError(
            f"{x_path} has {len(inputs)} rows and {y_path} has {len(targets)}: "
            f"they must belong together"
        )
    if not np.isin(targets, (0, 1)).all():
        raise DataError(f"{y_path} holds values other than 0 and 1: give a matrix of labels")
    return MultiLabelData(
        name=name,
        inputs=inputs.astype(np.float32),
        targets=targets_from_dense(targets),
        labels=tuple(f"label_{number}" for number in range(targets.shape[1])),
        features=tuple(f"feature_{number}" for number in range(inputs.shape[1])),
    )


def _numbers(path: Path) -> np.ndarray:
    with open_text(path) as file:
        lines = [line for line in file if line.strip()]
    try:
        table = np.loadtxt(lines, delimiter=",", ndmin=2) if lines else np.empty((0, 0))
    except ValueError as error:
        raise DataError(f"{path} is not a table of numbers ({error}): correct it") from error
    if not np.isfinite(table).all() or not table.size:
        raise DataError(f"{path} is empty or holds a value that is not finite: correct it")
    return table
