"""Tables too large for one device: each rank holds a slice of the rows, rank 0 saves all of them.

A network with such tables tells their names and slices as `slices`. Its `state_dict`, and that of
its optimiser, have the rows of this rank alone; files have all rows, whatever the number of ranks.
All functions here that move rows are for all ranks at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from train import ranks

BLOCK_NUMBERS = 1 << 24
"""That travel at a time: a rank needs no more room for them on the host."""


@dataclass(frozen=True)
class Slice:
    """The rows first, first + 1, ... end - 1 of a table, which one rank holds."""

    first: int
    end: int
    n_rows: int
    """Of the whole table."""

    def __len__(self) -> int:
        return self.end - self.first

    def holds(self, numbers: Tensor) -> Tensor:
        """Which row numbers of the whole table are among these: (numbers,) bool."""
        return (numbers >= self.first) & (numbers < self.end)

    def lent(self, own: Tensor, numbers: Tensor) -> Tensor:
        """Rows of the whole table, (numbers, width), which each rank asks for by its own numbers.

        own: (own rows, width). Every rank fills in what it holds of the rows that any rank asks
        for; they are few, so all of them travel to all.
        """
        asked = ranks.concatenated(numbers).unique()
        held = own.index_select(0, (asked - self.first).clamp(0, len(self) - 1))
        filled = torch.where(self.holds(asked).unsqueeze(1), held, 0)
        return ranks.total(filled).index_select(0, torch.searchsorted(asked, numbers))


def slice_of(n_rows: int, rank: int) -> Slice:
    """What a rank holds of a table; no two ranks differ by more than a row."""
    return Slice(n_rows * rank // ranks.size(), n_rows * (rank + 1) // ranks.size(), n_rows)


def slices_of(network: nn.Module) -> Mapping[str, Slice]:
    """The tables of which this rank holds a slice, by their names; none in most networks."""
    found: Mapping[str, Slice] = getattr(network, "slices", {})
    return found


def side_by_side(columns: Tensor) -> Tensor:
    """What ranks have of the same rows, (rows, own columns), together: (rows, all columns)."""
    return ranks.concatenated(columns.t().contiguous()).t()


def gathered(own: Tensor, n_rows: int, into: Tensor | None = None) -> Tensor:
    """The whole table in rank 0, on the host; other ranks keep what they have.

    own: (own rows, ...) of this rank. into: where rank 0 is to put it, (n_rows, ...).
    """
    if not ranks.is_first():
        for block in _blocks(own):
            with ranks.contact():
                dist.send(block.cpu().contiguous(), 0)
        return own
    whole = torch.empty(n_rows, *own.shape[1:], dtype=own.dtype) if into is None else into
    whole[: len(own)] = own
    for other in range(1, ranks.size()):
        theirs = slice_of(n_rows, other)
        for block in _blocks(whole[theirs.first : theirs.end]):
            with ranks.contact():
                dist.recv(block, other)
    return whole


def dealt_out(whole: Tensor | None, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """This rank's rows of a table that rank 0 has on the host: (own rows, ...), on the host.

    shape, dtype: of the whole table.
    """
    if whole is None:
        own = torch.empty(len(slice_of(shape[0], ranks.rank())), *shape[1:], dtype=dtype)
        for block in _blocks(own):
            with ranks.contact():
                dist.recv(block, 0)
        return own
    for other in range(1, ranks.size()):
        theirs = slice_of(shape[0], other)
        for block in _blocks(whole[theirs.first : theirs.end]):
            with ranks.contact():
                dist.send(block.contiguous(), other)
    return whole[: len(slice_of(shape[0], 0))]


def _blocks(table: Tensor) -> tuple[Tensor, ...]:
    """Views of some rows each, the same for every tensor of a shape."""
    blocks: tuple[Tensor, ...] = table.split(max(1, BLOCK_NUMBERS // table[0].numel()))
    return blocks
