"""Sums over parts of an index, in a fixed order: the arithmetic of sparse rows and label sets."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional


def ascending(keys: Tensor, end: int) -> Tensor:
    """Return where each of the keys, 0 to `end` - 1, stands in ascending order; ties in turn."""
    narrow = keys.to(torch.int16 if end <= 2**15 else torch.int32)
    if narrow.is_cpu:
        # numpy counts 16-bit integers instead of comparing them, torch only in long vectors.
        return torch.from_numpy(np.argsort(narrow.numpy(), kind="stable"))
    return narrow.argsort(stable=True)


def starts(keys: Tensor, end: int) -> Tensor:
    """Return where each key from 0 to `end` - 1 begins in ascending order, and the length."""
    ends = torch.bincount(keys, minlength=end).cumsum(0, dtype=keys.dtype)
    return functional.pad(ends, (1, 0))


def distinct(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return every key once, ascending, and where each of `keys` is among them.

    An accelerator would have to wait for how many there are: there the last one is repeated until
    there are as many as `keys`, and only its first place is ever named.
    """
    if keys.is_cpu:
        found, places = keys.unique(return_inverse=True)
        return found, places
    ordered, order = keys.sort()
    rank = functional.pad(ordered.diff().ne(0).cumsum(0), (1, 0))  # (keys,), 0 for the least
    places = torch.empty_like(rank).scatter_(0, order, rank)
    return ordered[-1:].repeat(len(keys)).scatter_(0, rank, ordered), places


def sums(table: Tensor, index: Tensor, starts: Tensor, weights: Tensor | None = None) -> Tensor:
    """Sum the rows of `table`, times `weights`, that each part of `index` names: (parts, d).

    Each sum is taken by one thread in a fixed order, so it is the same in every run.
    """
    return functional.embedding_bag(
        index, table, starts, mode="sum", include_last_offset=True, per_sample_weights=weights
    )
