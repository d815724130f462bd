"""Rows on the device: dense stays dense, CSR stays CSR, in batches too where that is faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from train import segments
from train.encoding import padded
from train.errors import ConfigError
from train.word_pieces import Pieces, word_feed

# Above this share of values that are not zero, or below this width, a dense product is faster than
# a sparse one with what it takes to prepare it.
GREATEST_DENSITY = 0.1
LEAST_WIDTH = 1000

# Up to this many values, an accelerator gets dense batches: it multiplies zeros faster than it
# waits for sizes.
GREATEST_ON_ACCELERATOR = 2**26

SCORING_ROWS, SCORING_VALUES, SCORING_TOKENS = 1024, 2**28, 2**14
"""Of a batch that is only scored, at most: rows, numbers in them, and, of texts, tokens."""
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


class LabelRows(Rows, Protocol):
    """The label sets of rows, fetched by number."""

    def lists(self, index: Tensor) -> LabelLists:
        """Return where the given rows are not zero."""
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

    def lists(self, index: Tensor) -> LabelLists:
        """Return where the given rows are not zero."""
        return LabelLists.of_dense(self.take(index))


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
        counts, _, columns, values = self._stored(index)
        if len(values) > GREATEST_DENSITY * len(index) * self.width:
            return self.take(index)
        return SparseBatch(
            shape=(len(index), self.width),
            columns=columns,
            values=values,
            row_starts=torch.nn.functional.pad(counts.cumsum(0), (1, 0)),
        )

    def lists(self, index: Tensor) -> LabelLists:
        """Return where the given rows are not zero; no dense matrix is made."""
        _, rows, columns, _ = self._stored(index)
        return LabelLists(shape=(len(index), self.width), rows=rows, labels=columns)

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
    """Rows of which only what is not zero is stored, row by row."""

    shape: tuple[int, int]
    columns: Tensor  # (stored,)
    values: Tensor  # (stored,)
    row_starts: Tensor  # (rows + 1,): where each begins in `columns` and `values`

    def __len__(self) -> int:
        return self.shape[0]

    @cached_property
    def by_column(self) -> tuple[Tensor, Tensor, Tensor]:
        """The same in the order of columns: row and value of each, and where columns begin."""
        order = segments.ascending(self.columns, self.shape[1])
        return (
            self._rows().index_select(0, order),
            self.values.index_select(0, order),
            segments.starts(self.columns, self.shape[1]),
        )

    def narrowed(self) -> tuple[Tensor, SparseBatch]:
        """Leave out columns of zeros: the numbers of the others, and the rows made of them.

        A product with a table of a million rows then reads, and differentiates, only what it uses.
        """
        columns, places = segments.distinct(self.columns)
        shape = (self.shape[0], len(columns))
        return columns, SparseBatch(shape, places, self.values, self.row_starts)

    def _rows(self) -> Tensor:
        return torch.repeat_interleave(self.row_starts.diff(), output_size=len(self.columns))

    def __matmul__(self, weight: Tensor) -> Tensor:
        """X W for W = `weight`, (width, d): (rows, d). Its gradient costs what is stored, too."""
        product: Tensor = _SparseProduct.apply(weight, self)  # type: ignore[no-untyped-call]
        return product

    def to_dense(self) -> Tensor:
        """Return the rows as a dense matrix; a dense tensor has the same method."""
        dense = self.values.new_zeros(self.shape)
        dense[self._rows(), self.columns] = self.values
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
class WordRows(TokenRows):
    """Rows of words as token numbers; a batch also says where words begin."""

    pieces: Sequence[Pieces] = ()

    @classmethod
    def of(cls, pieces: Sequence[Pieces], padding: int, device: torch.device) -> WordRows:
        """Rows that a `WordEncoder` made."""
        return cls([row.ids for row in pieces], padding, device, pieces)

    def select(self, rows: np.ndarray) -> WordRows:
        """Return some of the rows as a table of their own."""
        return WordRows.of([self.pieces[row] for row in rows], self.padding, self.device)

    def take(self, index: Tensor) -> Any:  # noqa: ANN401 - a matrix everywhere else
        """Return the given rows as a `WordBatch`."""
        feed = word_feed([self.pieces[row] for row in index.tolist()], self.padding)
        return WordBatch(
            **{name: torch.from_numpy(array).to(self.device) for name, array in feed.items()}
        )


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


@dataclass(frozen=True)
class WordBatch(TokenBatch):
    """Token numbers of rows of words, for networks that score labels of words."""

    predicate_mask: Tensor  # (rows, length) int64: 1 for the pieces of the predicate
    word_pieces: Tensor  # (rows, words) int64: where each begins, from 1; 0: there is no word

    def __getitem__(self, rows: slice) -> WordBatch:
        return WordBatch(*(getattr(self, field.name)[rows] for field in fields(self)))


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
        gradient = gradient.contiguous()
        rows, values, column_starts = ctx.x.by_column
        return segments.sums(gradient, rows, column_starts, values.to(gradient.dtype)), None


@dataclass(frozen=True)
class LabelLists:
    """The labels of a batch's rows as (row, label) pairs: a row with t labels has t of them.

    What a method gets in place of a (batch, labels) matrix, which a million labels forbid.
    """

    shape: tuple[int, int]
    """Of the matrix."""
    rows: Tensor  # (pairs,), ascending: 0 is the first row of the batch
    labels: Tensor  # (pairs,)

    def __len__(self) -> int:
        return self.shape[0]

    @classmethod
    def of_dense(cls, y: Tensor) -> LabelLists:
        """Take the cells of a (batch, labels) matrix that are not zero."""
        rows, labels = y.nonzero(as_tuple=True)
        return cls((y.shape[0], y.shape[1]), rows, labels)


def to_rows(matrix: np.ndarray | sparse.csr_array, device: torch.device) -> LabelRows:
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
    n_rows: int,
    batch_size: int,
    seed: int,
    epoch: int,
    lengths: Tensor | None = None,
    least: int = 1,
) -> tuple[Tensor, ...]:
    """The row numbers of each batch of one epoch; the same for the same seed and epoch.

    Drawn apart from the global generator, so that a resumed epoch needs no stored permutation.
    Where rows have `lengths`, (rows,), those of a batch are alike. Fewer than `least` rows that are
    left over go to the batch before them.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(n_rows, generator=generator)
    if lengths is None:
        return _cut(order, batch_size, least)
    pools = _cut(order, batch_size * POOLED_BATCHES, least)
    by_length = [pool[lengths[pool].argsort(stable=True)] for pool in pools]
    batches = [batch for pool in by_length for batch in _cut(pool, batch_size, least)]
    return tuple(batches[i] for i in torch.randperm(len(batches), generator=generator).tolist())


def _cut(order: Tensor, batch_size: int, least: int) -> tuple[Tensor, ...]:
    *parts, last = torch.split(order, batch_size)
    if parts and len(last) < least:
        last = torch.cat([parts.pop(), last])
    return (*parts, last)


def in_order(n_rows: int, batch_size: int) -> Iterator[Tensor]:
    """Row numbers from first to last, in batches."""
    yield from torch.split(torch.arange(n_rows), batch_size)


def scoring_order(rows: Rows) -> tuple[Tensor, ...]:
    """The row numbers of batches that are only scored: large ones, texts with those of a length."""
    if not isinstance(rows, TokenRows):
        return tuple(in_order(len(rows), max(1, min(SCORING_ROWS, SCORING_VALUES // rows.width))))
    order = rows.lengths.argsort(stable=True, descending=True)
    batches = []
    while len(order):
        count = max(1, min(SCORING_ROWS, SCORING_TOKENS // max(1, int(rows.lengths[order[0]]))))
        batches.append(order[:count])
        order = order[count:]
    return tuple(batches)
