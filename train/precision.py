"""Heavy networks may compute in half precision while they are trained; all else is float32.

Only what is decorated by `may_be_lowered` does: text encoders and convolutions. Weights, losses,
optimisers and the layers that make scores keep float32, and so does a model once it is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}

_lowered: dict[str, torch.dtype] = {}  # by the kind of device; empty: nothing is


@contextmanager
def computing_in(precision: Precision, device: torch.device) -> Iterator[None]:
    """Let heavy networks on this kind of device compute so."""
    if precision == "float32":
        yield
        return
    _lowered[device.type] = HALVES[precision]
    try:
        yield
    finally:
        del _lowered[device.type]


def may_be_lowered(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Decorate a heavy computation: inside `computing_in` it is done so, and returns float32."""

    @wraps(compute)
    def computed(*inputs: Any, **options: Any) -> Tensor:  # noqa: ANN401 - whatever it takes
        if not _lowered:
            return compute(*inputs, **options)
        ((kind, dtype),) = _lowered.items()
        with torch.autocast(kind, dtype):
            return compute(*inputs, **options).float()

    return computed
