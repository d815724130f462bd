"""Propensity of a label: the chance that it is recorded where true (Jain et al., KDD 2016)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from train.errors import DataError
from train.metrics.inputs import Floats


def propensities(
    counts: NDArray[np.integer], n_rows: int, a: float = 0.55, b: float = 1.5
) -> Floats:
    """Propensity of each label, `1 / (1 + C (count + b)^-a)` with `C = (ln n_rows - 1) (b + 1)^a`.

    counts: (labels,) training rows that have the label; n_rows: all training rows.
    """
    counts = np.asarray(counts)
    # At one or two rows C is negative and the formula leaves [0, 1].
    if n_rows < 3:
        raise DataError(f"propensities need at least 3 training rows, got {n_rows}")
    if counts.ndim != 1 or counts.min(initial=0) < 0 or counts.max(initial=0) > n_rows:
        raise DataError(f"counts must be one number a label between 0 and the {n_rows} rows")
    c = (np.log(n_rows) - 1) * (b + 1) ** a
    return np.asarray(1 / (1 + c * (counts + b) ** -a))
