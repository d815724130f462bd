"""The state of rank 0 in every rank: tensors travel one by one, everything else as it is.

Tables of which each rank holds a slice are whole in rank 0's state, and slices elsewhere.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from train import ranks
from train.slices import Slice, dealt_out, gathered


def from_first(state: Any, sliced: Container[str] = ()) -> Any:  # noqa: ANN401 - of nested dictionaries, lists and tuples
    """The state that rank 0 has: tensors and plain values; tensors come one by one.

    sliced: names of tables of which each rank, the first too, gets its slice alone.
    """
    if ranks.size() == 1:
        return state
    tensors: list[Tensor] = []
    plan = ranks.on_first(lambda: _taken_apart(state, tensors, sliced))
    return _put_together(plan, iter(tensors))


def to_first(state: Any, slices: Mapping[str, Slice]) -> Any:  # noqa: ANN401 - see `from_first`
    """A state whose tables are whole in rank 0, on the host; elsewhere it stays as it is."""
    return _with_whole(state, slices, None) if slices else state


def _with_whole(state: Any, slices: Mapping[str, Slice], own: Slice | None) -> Any:  # noqa: ANN401 - see `from_first`
    if isinstance(state, Tensor):
        return state if own is None else gathered(state, own.n_rows)
    if isinstance(state, dict):
        return {k: _with_whole(value, slices, slices.get(k, own)) for k, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_with_whole(value, slices, own) for value in state)
    return state


@dataclass(frozen=True)
class _Place:
    """Where a tensor was, and what a place for it looks like."""

    shape: torch.Size
    dtype: torch.dtype
    device: str
    is_sliced: bool


def _taken_apart(
    state: Any,  # noqa: ANN401 - see `from_first`
    tensors: list[Tensor],
    sliced: Container[str],
    is_sliced: bool = False,
) -> Any:  # noqa: ANN401 - see `from_first`
    if isinstance(state, Tensor):
        tensors.append(state.detach())
        return _Place(state.shape, state.dtype, state.device.type, is_sliced)
    if isinstance(state, dict):
        return {
            name: _taken_apart(value, tensors, sliced, is_sliced or name in sliced)
            for name, value in state.items()
        }
    if isinstance(state, (list, tuple)):
        return type(state)(_taken_apart(value, tensors, sliced, is_sliced) for value in state)
    return state


def _put_together(plan: Any, tensors: Iterator[Tensor]) -> Any:  # noqa: ANN401 - see `from_first`
    if isinstance(plan, _Place) and plan.is_sliced:
        whole = next(tensors) if ranks.is_first() else None
        return dealt_out(whole, plan.shape, plan.dtype)
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
