"""Rows on the device: dense stays dense, CSR stays CSR, in batches too where that is faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from train import segments
from train.encoding import padded
from train.errors import ConfigError

# Above this share of values that are not zero, or below this width, a dense product is faster than
# a sparse one with what it takes to prepare it.
GREATEST_DENSITY = 0.1
LEAST_WIDTH = 1000

# Up to this many values, an accelerator gets dense batches: it multiplies zeros faster than it
# waits for sizes.
GREATEST_ON_ACCELERATOR = 2**26

SCORING_ROWS, SCORING_TOKENS = 1024, 2**14
"""Of a batch that is only scored; attention needs memory for each token."""
POOLED_BATCHES = 50
"""So many batches of texts are drawn at once and then cut by length, so that few are padded."""

Context: TypeAlias = Any  # what torch hands to a backward takes any attribute


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

    def batch(self, index: Tensor) -> Inputs:
        """Return the given rows in the form in which a product with them is fast."""
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

    def batch(self, index: Tensor) -> Inputs:
        """Return the given rows, (len(index), width)."""
        return self.take(index)


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
        _, rows, columns, values = self._stored(index)
        dense = self.values.new_zeros(len(index), self.width)
        dense[rows, columns] = values
        return dense

    def batch(self, index: Tensor) -> Inputs:
        """Return the given rows, sparse where few of their values are not zero."""
        small = len(index) * self.width <= GREATEST_ON_ACCELERATOR
        if self.width < LEAST_WIDTH or (small and not index.is_cpu):
            return self.take(index)
        counts, rows, columns, values = self._stored(index)
        if len(values) > GREATEST_DENSITY * len(index) * self.width:
            return self.take(index)
        by_column = segments.ascending(columns, self.width)
        return SparseBatch(
            shape=(len(index), self.width),
            columns=columns,
            values=values,
            row_starts=torch.nn.functional.pad(counts.cumsum(0), (1, 0)),
            rows=rows.index_select(0, by_column),
            column_values=values.index_select(0, by_column),
            column_starts=segments.starts(columns, self.width),
        )

    def _stored(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """How many values each of the rows stores; the row, column and value of each of them."""
        first = self.starts.index_select(0, index)
        counts = self.starts.index_select(0, index + 1) - first
        rows = torch.repeat_interleave(counts)
        offset_of_row = first - (counts.cumsum(0) - counts)
        stored = torch.arange(len(rows), device=index.device) + offset_of_row.index_select(0, rows)
        columns, values = self.columns.index_select(0, stored), self.values.index_select(0, stored)
        return counts, rows, columns, values


@dataclass(frozen=True)
class SparseBatch:
    """Rows of which only what is not zero is stored, in the order of rows and of columns."""

    shape: tuple[int, int]
    columns: Tensor  # (stored,), by row
    values: Tensor  # (stored,), by row
    row_starts: Tensor  # (rows + 1,): where each begins in `columns` and `values`
    rows: Tensor  # (stored,), by column
    column_values: Tensor  # (stored,), by column
    column_starts: Tensor  # (width + 1,): where each begins in `rows` and `column_values`

    def __len__(self) -> int:
        return self.shape[0]

    def __matmul__(self, weight: Tensor) -> Tensor:
        """X W for W = `weight`, (width, d): (rows, d). Its gradient costs what is stored, too."""
        product: Tensor = _SparseProduct.apply(weight, self)  # type: ignore[no-untyped-call]
        return product

    def to_dense(self) -> Tensor:
        """Return the rows as a dense matrix; a dense tensor has the same method."""
        counts = self.row_starts.diff()
        dense = self.values.new_zeros(self.shape)
        dense[torch.repeat_interleave(counts), self.columns] = self.values
        return dense


@dataclass(frozen=True)
class TokenRows:
    """Texts as token numbers, on the host; a batch is padded to its longest and then moved."""

    texts: Sequence[np.ndarray]  # of each row (tokens,)
    padding: int
    device: torch.device

    @property
    def width(self) -> int:
        """Tokens of the longest row."""
        return int(self.lengths.max())

    @cached_property
    def lengths(self) -> Tensor:
        """(rows,) tokens of each."""
        return torch.tensor([len(text) for text in self.texts])

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, rows: np.ndarray) -> TokenRows:
        """Return some of the rows as a table of their own."""
        return TokenRows([self.texts[row] for row in rows], self.padding, self.device)

    def take(self, index: Tensor) -> Any:  # noqa: ANN401 - a matrix everywhere else
        """Return the given rows as a `TokenBatch`: there is no other form."""
        rows = [self.texts[row] for row in index.tolist()]
        matrices = (torch.from_numpy(matrix) for matrix in padded(rows, self.padding))
        return TokenBatch(*(matrix.to(self.device) for matrix in matrices))

    def batch(self, index: Tensor) -> Inputs:
        """Return the given rows as a `TokenBatch`."""
        batch: TokenBatch = self.take(index)
        return batch


@dataclass(frozen=True)
class TokenBatch:
    """Token numbers of texts, for networks that begin with a text encoder."""

    input_ids: Tensor  # (rows, length) int64
    attention_mask: Tensor  # (rows, length) int64: 1 for a token, 0 for padding

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and tokens of the longest."""
        return self.input_ids.shape[0], self.input_ids.shape[1]

    def __len__(self) -> int:
        return self.input_ids.shape[0]

    def __getitem__(self, rows: slice) -> TokenBatch:
        return TokenBatch(self.input_ids[rows], self.attention_mask[rows])

    def to_dense(self) -> NoReturn:
        """Refuse: numbers of tokens are no features."""
        raise ConfigError(NO_TOKENS)

    def __matmul__(self, weight: Tensor) -> NoReturn:
        raise ConfigError(NO_TOKENS)


NO_TOKENS = "this method takes feature vectors, not tokens: use --tuning frozen or --encoder tfidf"

Inputs: TypeAlias = Tensor | SparseBatch | TokenBatch
"""Rows (batch, features), or texts. What needs features dense says `x.to_dense()`."""


class _SparseProduct(torch.autograd.Function):
    """X W; the gradient of W is X^T G, the same kind of sum in the order of columns."""

    @staticmethod
    def forward(ctx: Context, weight: Tensor, x: SparseBatch) -> Tensor:
        ctx.x = x
        # Detached: for a gradient of its own it would do more.
        values = x.values.to(weight.dtype)
        return segments.sums(weight.detach(), x.columns, x.row_starts, values)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None]:
        x, gradient = ctx.x, gradient.contiguous()
        values = x.column_values.to(gradient.dtype)
        return segments.sums(gradient, x.rows, x.column_starts, values), None


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


def batch_order(
    n_rows: int, batch_size: int, seed: int, epoch: int, lengths: Tensor | None = None
) -> tuple[Tensor, ...]:
    """The row numbers of each batch of one epoch; the same for the same seed and epoch.

    Drawn apart from the global generator, so that a resumed epoch needs no stored permutation.
    Where rows have `lengths`, (rows,), those of a batch are alike.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(n_rows, generator=generator)
    if lengths is None:
        return tuple(torch.split(order, batch_size))
    pools = torch.split(order, batch_size * POOLED_BATCHES)
    by_length = [pool[lengths[pool].argsort(stable=True)] for pool in pools]
    batches = [batch for pool in by_length for batch in torch.split(pool, batch_size)]
    return tuple(batches[i] for i in torch.randperm(len(batches), generator=generator).tolist())


def in_order(n_rows: int, batch_size: int) -> Iterator[Tensor]:
    """Row numbers from first to last, in batches."""
    yield from torch.split(torch.arange(n_rows), batch_size)


def scoring_order(rows: Rows) -> tuple[Tensor, ...]:
    """The row numbers of batches that are only scored: large ones, texts with those of a length."""
    if not isinstance(rows, TokenRows):
        return tuple(in_order(len(rows), SCORING_ROWS))
    order = rows.lengths.argsort(stable=True, descending=True)
    batches = []
    while len(order):
        count = max(1, min(SCORING_ROWS, SCORING_TOKENS // max(1, int(rows.lengths[order[0]]))))
        batches.append(order[:count])
        order = order[count:]
    return tuple(batches)
