"""A data set made ready for training: split, scaled, on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy import sparse

from train.batches import GREATEST_DENSITY, Rows, to_rows
from train.data import MultiLabelData, Split
from train.data.dataset import Features
from train.errors import ConfigError, DataError


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes from which a method builds its networks."""

    n_features: int
    n_labels: int
    n_rows: int
    """Training rows."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """`(x - mean) / scale`, fitted on the training rows; part of the exported graph."""

    mean: np.ndarray
    scale: np.ndarray

    def tensors(self) -> dict[str, torch.Tensor]:
        """Both as tensors, for a checkpoint."""
        return {"mean": torch.from_numpy(self.mean), "scale": torch.from_numpy(self.scale)}


@dataclass(frozen=True, kw_only=True)
class Part:
    """The rows of one part of a split."""

    x: Rows
    y: Rows
    targets: sparse.csr_array
    """`y` once more, on the host, for the metrics."""

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """All that a method may look at."""

    shape: Shape
    train: Part
    validation: Part
    test: Part
    scaling: Scaling | None
    device: torch.device


def feature_matrix(data: MultiLabelData) -> Features:
    """The inputs of a data set of feature vectors; text is refused."""
    if isinstance(data.inputs, list):
        raise DataError(f"{data.name} holds text: methods take feature vectors, so give numbers")
    return data.inputs


def make_problem(
    data: MultiLabelData,
    split: Split,
    device: torch.device,
    scaling: Literal["auto", "none", "standard"] = "auto",
) -> Problem:
    """Scale the inputs by what the training rows say and put the three parts on the device."""
    inputs = feature_matrix(data)
    for part in ("train", "validation", "test"):
        rows = getattr(split, part)
        missing = "rows" if len(rows) == 0 else "labels" if data.targets[rows].nnz == 0 else None
        if missing:
            raise DataError(
                f"{data.name} has no {missing} in its {part} part under --split {split.rule}: "
                "give more rows, or another --split"
            )
    fitted = _fit_scaling(inputs, split.train, scaling)
    if fitted is None and _density(inputs) <= GREATEST_DENSITY:
        inputs = sparse.csr_array(inputs)

    def part_of(rows: np.ndarray) -> Part:
        x, targets = inputs[rows], data.targets[rows]
        if fitted is not None:
            x = (x - fitted.mean) / fitted.scale
        return Part(x=to_rows(x, device), y=to_rows(targets, device), targets=targets)

    return Problem(
        shape=Shape(n_features=data.n_features, n_labels=data.n_labels, n_rows=len(split.train)),
        train=part_of(split.train),
        validation=part_of(split.validation),
        test=part_of(split.test),
        scaling=fitted,
        device=device,
    )


def _density(inputs: Features) -> float:
    stored = np.count_nonzero(inputs) if isinstance(inputs, np.ndarray) else inputs.nnz
    return float(stored / max(1, inputs.shape[0] * inputs.shape[1]))


def _fit_scaling(inputs: Features, train_rows: np.ndarray, scaling: str) -> Scaling | None:
    if scaling == "none":
        return None
    if sparse.issparse(inputs):
        if scaling == "standard":
            raise ConfigError("--scaling standard would make sparse inputs dense: use none or auto")
        return None
    train = inputs[train_rows].astype(np.float64)
    if scaling == "auto" and np.isin(train, (0.0, 1.0)).all():
        return None
    deviation = train.std(axis=0)
    return Scaling(
        mean=train.mean(axis=0).astype(np.float32),
        # A constant column carries nothing; dividing by one keeps it at zero.
        scale=np.where(deviation > 0, deviation, 1.0).astype(np.float32),
    )


def resolve_device(name: str) -> torch.device:
    """Turn `--device` into a device that is really there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"--device {name} is unknown: use auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"--device {name}: this machine has no usable CUDA GPU; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"--device {name}: there are only {torch.cuda.device_count()} GPUs here")
    return device
