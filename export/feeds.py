"""Rows as the named inputs of a graph: arrays that all have as many rows. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# (ONNX type, number of axes) of the inputs of a graph, beside `k`, by what it is fed with.
GRAPH_INPUTS = {
    "features": {"features": ("tensor(float)", 2)},
    "sparse": {"indices": ("tensor(int64)", 2), "values": ("tensor(float)", 2)},
    "tokens": {"input_ids": ("tensor(int64)", 2), "attention_mask": ("tensor(int64)", 2)},
}

Feed = Mapping[str, NDArray[Any]]
"""Inputs of a graph by name. Padding at the end of a row is zero, whatever the kind."""


def rows_in(feed: Feed) -> int:
    """How many rows a feed has."""
    return len(next(iter(feed.values())))


def bytes_in(feed: Feed) -> int:
    """What the arrays of a feed take in memory."""
    return sum(array.nbytes for array in feed.values())


def cut(feed: Feed, start: int, end: int) -> Feed:
    """The rows from `start` up to `end`."""
    return {name: array[start:end] for name, array in feed.items()}


def repeated(feed: Feed, rows: int) -> Feed:
    """As many rows as told, the same ones over and over."""
    chosen = np.arange(rows) % rows_in(feed)
    return {name: array[chosen] for name, array in feed.items()}


def in_parts(feed: Feed, rows: int) -> Iterator[Feed]:
    """All rows, so many at a time."""
    for start in range(0, rows_in(feed), rows):
        yield cut(feed, start, start + rows)


def joined(feeds: Sequence[Feed]) -> Feed:
    """The rows of several feeds one after another, padded to the longest."""
    if len(feeds) == 1:
        return feeds[0]
    return {name: _stacked([feed[name] for feed in feeds]) for name in feeds[0]}


def _stacked(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    longest = max(array.shape[1] for array in arrays)
    if all(array.shape[1] == longest for array in arrays):
        return np.concatenate(arrays)
    stacked = np.zeros((sum(map(len, arrays)), longest), arrays[0].dtype)
    end = 0
    for array in arrays:
        start, end = end, end + len(array)
        stacked[start:end, : array.shape[1]] = array
    return stacked


def padded(
    counts: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[np.float32]
) -> Feed:
    """Stored values, row after row, as a feed of kind `sparse`: (rows, most stored) each.

    Args:
        counts: How many values each row stores, (rows,).
        columns: Of all stored values.
        values: All stored values.
    """
    rows = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(rows)) - np.repeat(counts.cumsum() - counts, counts)
    shape = (len(counts), max(1, int(counts.max(initial=0))))
    indices, stored = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    indices[rows, places] = columns
    stored[rows, places] = values
    return {"indices": indices, "values": stored}
