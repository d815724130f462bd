"""Head, torso and tail: split the labels by how often they occur in the training rows.

Two definitions are in use and they disagree; both give masks that cover each label exactly once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from train.errors import DataError

Slices = dict[str, NDArray[np.bool_]]

HEAD_COUNT, TORSO_COUNT = 100, 20
HEAD_QUANTILE, TORSO_QUANTILE = 0.66, 0.33


def slices_by_count(train_counts: NDArray[np.integer]) -> Slices:
    """Split at fixed counts, as long-tail benchmarks do: head >= 100, torso >= 20, tail < 20.

    train_counts: (labels,). Returns the masks `head`, `torso` and `tail`; any may be empty.
    """
    counts = _checked(train_counts)
    return _masks(counts >= HEAD_COUNT, counts >= TORSO_COUNT)


def slices_by_quantile(train_counts: NDArray[np.integer]) -> Slices:
    """Split at the 66 % and 33 % quantiles of the counts, as retrieval benchmarks do.

    Head is strictly above the upper quantile and torso strictly above the lower one, so labels tied
    with a quantile always fall on its lower side. Quantiles interpolate linearly between counts.
    """
    counts = _checked(train_counts)
    lower, upper = np.quantile(counts, [TORSO_QUANTILE, HEAD_QUANTILE])
    return _masks(counts > upper, counts > lower)


def _masks(head: NDArray[np.bool_], head_or_torso: NDArray[np.bool_]) -> Slices:
    return {"head": head, "torso": head_or_torso & ~head, "tail": ~head_or_torso}


def _checked(train_counts: NDArray[np.integer]) -> NDArray[np.integer]:
    counts = np.asarray(train_counts)
    if counts.ndim != 1 or not counts.size:
        raise DataError(f"train_counts needs one count for each label, got shape {counts.shape}")
    return counts
