"""Rows as the named inputs of a graph: arrays that all have as many rows. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

# (ONNX type, number of axes) of the inputs of a graph, beside `k`, by what it is fed with.
GRAPH_INPUTS = {
    "features": {"features": ("tensor(float)", 2)},
    "sparse": {"indices": ("tensor(int64)", 2), "values": ("tensor(float)", 2)},
    "tokens": {"input_ids": ("tensor(int64)", 2), "attention_mask": ("tensor(int64)", 2)},
    "words": dict.fromkeys(
        ("input_ids", "attention_mask", "predicate_mask", "word_pieces"), ("tensor(int64)", 2)
    ),
}

Feed = Mapping[str, NDArray[Any]]
"""Inputs of a graph by name. Padding at the end of a row is zero, whatever the kind."""


def rows_in(feed: Feed) -> int:
    """How many rows a feed has."""
    return len(next(iter(feed.values())))


def cut(feed: Feed, start: int, end: int) -> Feed:
    """The rows from `start` up to `end`."""
    return {name: array[start:end] for name, array in feed.items()}


def alone(feed: Feed, row: int) -> Feed:
    """One row, as it is fed without others beside it: tokens without padding."""
    part = cut(feed, row, row + 1)
    if "attention_mask" not in part:
        return part
    length = int(part["attention_mask"].sum())
    return {name: array[:, :length] for name, array in part.items()}


def repeated(feed: Feed, rows: int) -> Feed:
    """As many rows as told, the same ones over and over."""
    chosen = np.arange(rows) % rows_in(feed)
    return {name: array[chosen] for name, array in feed.items()}


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
