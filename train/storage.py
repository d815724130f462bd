"""Files of tensors and plain values: written whole or not at all, read without unpickling code."""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from train.archives import BROKEN, FREE_BYTES
from train.errors import CheckpointError

SCHEMA_VERSION = 1
BYTEARRAY = re.compile(rb"c(__builtin__|builtins)\nbytearray\n")


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
    _check_archive(path)
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
    for tensor in _tensors(values):
        _check_tensor(path, tensor)
    return values


def _check_archive(path: Path) -> None:
    """Refuse what torch would unpack, or build, far beyond the size of the file.

    It writes its archives unpacked, and reads packed ones all the same. Of what it may build
    without code from the file only a `bytearray` is as large as a number says.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            is_honest = all(member.compress_type == zipfile.ZIP_STORED for member in members)
            is_honest &= sum(member.file_size for member in members) <= path.stat().st_size
            pickles = [member for member in members if member.filename.endswith(".pkl")]
            is_honest &= is_honest and not any(map(_makes_bytes, map(archive.read, pickles)))
    except (OSError, *BROKEN) as error:
        raise CheckpointError(
            f"{path} is not a model.pt, or it is damaged: train it again"
        ) from error
    if not is_honest:
        raise CheckpointError(
            f"{path} would be larger in memory than as a file, which no model.pt of this program "
            "is: do not use it"
        )


def _makes_bytes(pickled: bytes) -> bool:
    return BYTEARRAY.search(pickled) is not None


def _tensors(value: object) -> Iterator[torch.Tensor]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, (list, tuple)) and not all(type(item) is str for item in value):
            waiting += value


def _check_tensor(path: Path, tensor: torch.Tensor) -> None:
    """Refuse a few numbers that pretend to be many: a copy would fill the memory."""
    size = tensor.numel() * tensor.element_size()
    is_plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
    stored = tensor.untyped_storage().nbytes() if is_plain else 0
    if size > max(stored, FREE_BYTES):
        raise CheckpointError(
            f"{path} holds a tensor that claims {size} bytes and has {stored}: do not use it"
        )
