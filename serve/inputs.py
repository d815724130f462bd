"""Rows of requests as they wait, without padding, and as they go into a graph, with little of it.

Rows of very different length are run in parts of similar length, so that a long one costs the
short ones nothing; the answers come back in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.feeds import Feed, padded
from train.word_pieces import WordRow

MOST_CELLS = 2**14
"""Of an input (rows, length) of one call: beyond it larger batches gain nothing."""
CALL = 1024
"""What a call costs beside its cells, in cells: more padding than that is worth another call."""
TOKEN_CALL = 16
"""The same for a text encoder on a CPU: to read its weights takes as long as so many tokens do."""


@dataclass(slots=True)
class DenseRows:
    """Rows (rows, width) of numbers."""

    features: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.features)

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return self.features.nbytes


@dataclass(slots=True)
class SparseRows:
    """Stored values, row after row."""

    counts: NDArray[np.int64]  # (rows,)
    columns: NDArray[np.int64]  # (stored,)
    values: NDArray[np.float32]  # (stored,)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return self.counts.nbytes + self.columns.nbytes + self.values.nbytes


@dataclass(slots=True)
class TextRows:
    """One text a row."""

    texts: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def nbytes(self) -> int:
        """What they take in memory, at most four bytes a character."""
        return 4 * sum(map(len, self.texts))


@dataclass(slots=True)
class WordRows:
    """Rows of words."""

    rows: list[WordRow]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """What they take in memory, at most four bytes a character."""
        return 4 * sum(len(word) for row in self.rows for word in row.words)


Rows = DenseRows | SparseRows | TextRows | WordRows


@dataclass(slots=True)
class Parts:
    """The inputs of one or more calls, and where the rows of their answers belong."""

    feeds: Sequence[Feed]
    order: NDArray[np.int64] | None
    """The row that each row of the answers is; None: they are in order."""


def joined(batch: Sequence[Any]) -> Any:  # noqa: ANN401 - rows of one kind in, and out
    """The rows of several requests to one model, one after another."""
    first = batch[0]
    if len(batch) == 1:
        return first
    if isinstance(first, DenseRows):
        return DenseRows(np.concatenate([rows.features for rows in batch]))
    if isinstance(first, WordRows):
        return WordRows(list(chain.from_iterable(rows.rows for rows in batch)))
    if isinstance(first, TextRows):
        return TextRows(list(chain.from_iterable(rows.texts for rows in batch)))
    return SparseRows(
        *(
            np.concatenate([getattr(rows, name) for rows in batch])
            for name in ("counts", "columns", "values")
        )
    )


def dense_parts(rows: DenseRows) -> Parts:
    """All rows in one call."""
    return Parts([{"features": rows.features}], None)


def sparse_parts(rows: SparseRows) -> Parts:
    """Rows that store about as many values together."""
    order, spans = _by_length(rows.counts, CALL)
    if order is None:
        return Parts([padded(rows.counts, rows.columns, rows.values)], None)
    starts = rows.counts.cumsum() - rows.counts
    feeds = []
    for span in spans:
        chosen = order[span]
        stored = np.concatenate(
            [np.arange(s, s + n) for s, n in _runs(starts, rows.counts, chosen)]
        )
        feeds.append(padded(rows.counts[chosen], rows.columns[stored], rows.values[stored]))
    return Parts(feeds, order)


def token_parts(feed: Feed, call: int = TOKEN_CALL) -> Parts:
    """Texts with about as many tokens together; `attention_mask` tells how many each has.

    The words of a row stay as many as in the longest: their scores must lie in one matrix.
    """
    lengths = feed["attention_mask"].sum(axis=1)
    order, spans = _by_length(lengths, call)
    if order is None:
        return Parts([feed], None)
    feeds = []
    for span in spans:
        chosen = order[span]
        longest = int(lengths[chosen].max())
        feeds.append(
            {
                name: array[chosen] if name == "word_pieces" else array[chosen, :longest]
                for name, array in feed.items()
            }
        )
    return Parts(feeds, order)


def sparse_rows(feed: Feed) -> SparseRows:
    """Padded rows without their padding."""
    is_stored = feed["values"] != 0
    return SparseRows(is_stored.sum(axis=1), feed["indices"][is_stored], feed["values"][is_stored])


def in_order(answers: Sequence[NDArray[Any]], order: NDArray[np.int64] | None) -> NDArray[Any]:
    """The answers of all calls, each row where it belongs."""
    if order is None:
        return answers[0]
    together = np.concatenate(answers)
    restored = np.empty_like(together)
    restored[order] = together
    return restored


def _by_length(
    lengths: NDArray[np.int64], call: int
) -> tuple[NDArray[np.int64] | None, list[slice]]:
    """Rows from long to short, and the parts to run; None where one call does as well."""
    cells = len(lengths) * int(lengths.max(initial=0))
    padding = cells - int(lengths.sum())
    if len(lengths) == 1 or (padding <= call and cells <= MOST_CELLS):
        return None, []
    order = np.argsort(-lengths, kind="stable")
    return order, list(_spans(lengths[order].tolist(), call))


def _spans(falling: Sequence[int], call: int) -> Iterator[slice]:
    """Parts that end where padding would cost more than another call, or calls grow too large."""
    start = padding = 0
    for end in range(1, len(falling)):
        longest = falling[start]
        padding += longest - falling[end]
        if padding > call or (end + 1 - start) * longest > MOST_CELLS:
            yield slice(start, end)
            start, padding = end, 0
    yield slice(start, len(falling))


def _runs(
    starts: NDArray[np.int64], counts: NDArray[np.int64], chosen: NDArray[np.int64]
) -> Iterator[tuple[int, int]]:
    return zip(starts[chosen].tolist(), counts[chosen].tolist(), strict=True)
