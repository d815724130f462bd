"""Rows on the device: dense stays dense, CSR stays CSR until a batch is taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from scipy import sparse
from torch import Tensor


class Rows(Protocol):
    """A matrix whose rows are fetched by number."""

    @property
    def width(self) -> int:
        """Number of columns."""
        ...

    def __len__(self) -> int: ...

    def take(self, index: Tensor) -> Tensor:
        """Return the given rows as a dense float matrix, (len(index), width)."""
        ...


@dataclass(frozen=True)
class DenseRows:
    """A dense matrix that lies on the device as a whole."""

    values: Tensor

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.values.shape[1]

    def __len__(self) -> int:
        return self.values.shape[0]

    def take(self, index: Tensor) -> Tensor:
        """Return the given rows, (len(index), width)."""
        return self.values.index_select(0, index)


@dataclass(frozen=True)
class SparseRows:
    """A CSR matrix on the device; only the rows of a batch are ever dense."""

    starts: Tensor  # (rows + 1,)
    columns: Tensor  # (stored values,)
    values: Tensor  # (stored values,)
    width: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    def take(self, index: Tensor) -> Tensor:
        """Return the given rows as a dense matrix, (len(index), width)."""
        first = self.starts.index_select(0, index)
        counts = self.starts.index_select(0, index + 1) - first
        rows = torch.repeat_interleave(counts)  # batch row of each stored value
        offset_of_row = first - (counts.cumsum(0) - counts)
        stored = torch.arange(len(rows), device=index.device) + offset_of_row.index_select(0, rows)
        dense = self.values.new_zeros(len(index), self.width)
        dense[rows, self.columns.index_select(0, stored)] = self.values.index_select(0, stored)
        return dense


def to_rows(matrix: np.ndarray | sparse.csr_array, device: torch.device) -> Rows:
    """Put a matrix on the device in the form it has."""
    if isinstance(matrix, np.ndarray):
        return DenseRows(torch.from_numpy(np.ascontiguousarray(matrix, np.float32)).to(device))
    return SparseRows(
        starts=torch.from_numpy(matrix.indptr.astype(np.int64)).to(device),
        columns=torch.from_numpy(matrix.indices.astype(np.int64)).to(device),
        values=torch.from_numpy(matrix.data.astype(np.float32)).to(device),
        width=matrix.shape[1],
    )


def batch_order(n_rows: int, batch_size: int, seed: int, epoch: int) -> tuple[Tensor, ...]:
    """The row numbers of each batch of one epoch; the same for the same seed and epoch.

    Drawn apart from the global generator, so that a resumed epoch needs no stored permutation.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return tuple(torch.split(torch.randperm(n_rows, generator=generator), batch_size))


def in_order(n_rows: int, batch_size: int) -> Iterator[Tensor]:
    """Row numbers from first to last, in batches."""
    yield from torch.split(torch.arange(n_rows), batch_size)
