"""Files of tensors and plain values: written whole or not at all, read without unpickling code."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from train.errors import CheckpointError

SCHEMA_VERSION = 1


def save(values: dict[str, Any], path: Path) -> None:
    """Write tensors and plain values beside `path`, then rename: never a half-written file."""
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(values, file)
        Path(scratch).chmod(0o644)
        os.replace(scratch, path)
    except BaseException as error:
        Path(scratch).unlink(missing_ok=True)
        # On a full disk torch fails once more while it closes the file: the first failure says why.
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        if isinstance(cause, OSError):
            raise OSError(cause.errno, cause.strerror, str(path)) from error
        raise


def load(path: Path) -> dict[str, Any]:
    """Read tensors and plain values; never runs code from the file."""
    if not path.is_file():
        raise CheckpointError(
            f"{path} does not exist: `python -m train METHOD --dataset NAME` writes a model.pt"
        )
    try:
        values = torch.load(path, map_location="cpu", weights_only=True, mmap=True)  # noqa: TID251
    except Exception as error:
        raise CheckpointError(
            f"{path} is not a model.pt, or it is damaged: train it again"
        ) from error
    schema = values.get("schema") if isinstance(values, dict) else None
    if not isinstance(values, dict) or schema != SCHEMA_VERSION:
        raise CheckpointError(
            f"{path} has checkpoint schema {schema}, this version reads {SCHEMA_VERSION}: "
            "train the model again"
        )
    return values
