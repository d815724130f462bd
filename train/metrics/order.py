"""Rank labels by score with deterministic ties: one sort serves every ranking metric.

A cell becomes one 64-bit key: the score's bits, turned so that higher scores come first, above the
label's number, above one bit that says whether the label is true. Sorting those integers ranks by
score and then by lower number, needs no index array, and carries the truth along, which is several
times faster than a stable argsort followed by a gather. Cells are sorted in blocks that fit the
processor's cache, so beyond the scores no matrix of their size ever exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from train.errors import DataError
from train.metrics.inputs import Floats, Ints, Scores, as_scores, cell_numbers
from train.metrics.sets import ratio

_BLOCK_CELLS = 1 << 17

Keys = NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class RankedPositives:
    """Where the positives stand when the items of each group are ranked by score.

    A group is a row and its items the labels, or a group is a label and its items the rows. The
    first six arrays have one entry for each positive, by group and then by rank, from 1.
    """

    group: Ints
    item: Ints
    rank: Ints
    """Ties broken by lower item."""
    tied_rank: Ints
    """Items of the group that score at least as high: the last rank among ties."""
    tied_hits: Ints
    """Positives of the group that score at least as high."""
    hits: Ints
    """Positives of the group ranked up to here, ties broken by lower item."""
    positives: Ints
    """(groups,) how many positives each group has."""
    n_items: int
    top: Ints
    """(groups, keep) best items of each group, best first."""
    top_hits: NDArray[np.bool_]
    """(groups, keep) whether they are positives."""

    def average_precision(self) -> Floats:
        """Mean precision at the positives of each group, (groups,); 0 for groups without any."""
        return ratio(self.group_sums(self.hits / self.rank), self.positives)

    def group_sums(self, values: NDArray[np.number]) -> Floats:
        """Sum a value of each positive within its group."""
        weights = np.asarray(values, dtype=np.float64)
        sums = np.bincount(self.group, weights=weights, minlength=len(self.positives))
        return np.asarray(sums, dtype=np.float64)

    def last_positive(self) -> Ints:
        """(groups with a positive,) where the lowest positive of each group is in the arrays."""
        return np.cumsum(self.positives)[self.positives > 0] - 1


def top_k(scores: NDArray[np.floating], k: int) -> Ints:
    """Find the k best labels of each row, (rows, k), best first; ties go to the lower label.

    Works on any numbers, in blocks: give it the scores of a batch and keep the answers.
    """
    matrix = as_scores(scores)
    n_labels = matrix.shape[1]
    if not 1 <= k <= n_labels:
        raise DataError(f"k must be between 1 and the {n_labels} labels, got {k}")
    parts = []
    for _, block in _blocks(matrix):
        keys = _descending_keys(block)
        keys.partition(k - 1, axis=1)
        parts.append(_items(np.sort(keys[:, :k], axis=1)))
    return np.concatenate(parts)


def rank_positives(scores: Scores, targets: sparse.csr_array, *, keep: int = 0) -> RankedPositives:
    """Rank the columns of each row and report where its positives stand, with the `keep` best.

    scores: (groups, items), a transposed view is welcome; targets: canonical CSR of that shape.
    """
    n_items = scores.shape[1]
    cells = cell_numbers(targets)
    places, ends, items, tops = [], [], [], []
    for start, block in _blocks(scores):
        first, last = targets.indptr[start], targets.indptr[start + len(block)]
        keys = _descending_keys(block)
        keys.reshape(-1)[cells[first:last] - start * n_items] |= np.uint64(1)
        keys.sort(axis=1)
        place = np.flatnonzero((keys & np.uint64(1)).astype(bool))
        places.append(place + start * n_items)
        ends.append(_tie_ends(keys, place) + start * n_items)
        items.append(_items(keys.reshape(-1)[place]))
        tops.append(keys[:, :keep].copy())
    place, end, top = np.concatenate(places), np.concatenate(ends), np.concatenate(tops)
    group = place // n_items
    # `place` is sorted, so the positives up to a place are found by bisection.
    earlier = targets.indptr[:-1].astype(np.int64)[group]
    return RankedPositives(
        group=group,
        item=np.concatenate(items),
        rank=place - group * n_items + 1,
        tied_rank=end - group * n_items + 1,
        tied_hits=np.searchsorted(place, end, side="right") - earlier,
        hits=np.arange(1, len(place) + 1) - earlier,
        positives=np.diff(targets.indptr).astype(np.int64),
        n_items=n_items,
        top=_items(top),
        top_hits=(top & np.uint64(1)).astype(bool),
    )


def _blocks(matrix: Scores) -> Iterator[tuple[int, Scores]]:
    step = max(1, _BLOCK_CELLS // matrix.shape[1])
    for start in range(0, len(matrix), step):
        yield start, np.ascontiguousarray(matrix[start : start + step])


def _descending_keys(block: Scores) -> Keys:
    # Adding zero turns -0.0 into 0.0: they are equal scores with different bits.
    bits = (block + np.float32(0)).view(np.int32)
    # As unsigned integers, negative floats already fall; positive ones must be turned around.
    bits ^= ~(bits >> 31) & np.int32(0x7FFFFFFF)
    keys = bits.view(np.uint32).astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(block.shape[1], dtype=np.uint64) << np.uint64(1)
    return keys


def _items(keys: Keys) -> Ints:
    return ((keys & np.uint64(0xFFFFFFFF)) >> np.uint64(1)).astype(np.int64)


def _tie_ends(keys: Keys, places: Ints) -> Ints:
    """Last place with the same score as each given place, all places counted through the block."""
    bits = keys >> np.uint64(32)
    run_ends = np.ones(keys.shape, dtype=bool)
    np.not_equal(bits[:, :-1], bits[:, 1:], out=run_ends[:, :-1])
    if run_ends.reshape(-1)[places].all():
        return places
    ends = np.flatnonzero(run_ends)
    return ends[np.searchsorted(ends, places)]
