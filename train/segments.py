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


def sums(table: Tensor, index: Tensor, starts: Tensor, weights: Tensor | None = None) -> Tensor:
    """Sum the rows of `table`, times `weights`, that each part of `index` names: (parts, d).

    Each sum is taken by one thread in a fixed order, so it is the same in every run.
    """
    return functional.embedding_bag(
        index, table, starts, mode="sum", include_last_offset=True, per_sample_weights=weights
    )
