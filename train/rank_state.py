"""The state of rank 0 in every rank: tensors travel one by one, everything else as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from train import ranks


def from_first(state: Any) -> Any:  # noqa: ANN401 - of nested dictionaries, lists and tuples
    """The state that rank 0 has: tensors and plain values; tensors come one by one."""
    if ranks.size() == 1:
        return state
    tensors: list[Tensor] = []
    plan = ranks.on_first(lambda: _taken_apart(state, tensors))
    return _put_together(plan, iter(tensors))


@dataclass(frozen=True)
class _Place:
    """Where a tensor was, and what a place for it looks like."""

    shape: torch.Size
    dtype: torch.dtype
    device: str


def _taken_apart(state: Any, tensors: list[Tensor]) -> Any:  # noqa: ANN401 - see `from_first`
    if isinstance(state, Tensor):
        tensors.append(state.detach())
        return _Place(state.shape, state.dtype, state.device.type)
    if isinstance(state, dict):
        return {name: _taken_apart(value, tensors) for name, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_taken_apart(value, tensors) for value in state)
    return state


def _put_together(plan: Any, tensors: Iterator[Tensor]) -> Any:  # noqa: ANN401 - see `from_first`
    if isinstance(plan, _Place):
        sent = next(tensors).contiguous() if ranks.is_first() else _room(plan)
        with ranks.contact():
            dist.broadcast(sent, 0)
        return sent
    if isinstance(plan, dict):
        return {name: _put_together(value, tensors) for name, value in plan.items()}
    if isinstance(plan, (list, tuple)):
        return type(plan)(_put_together(value, tensors) for value in plan)
    return plan


def _room(place: _Place) -> Tensor:
    device = torch.device("cuda", ranks.local_rank()) if place.device == "cuda" else "cpu"
    return torch.empty(place.shape, dtype=place.dtype, device=device)
