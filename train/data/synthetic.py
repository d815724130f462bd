"""`synthetic`: generated rows with as many labels and sparse features as one asks for.

`synthetic:labels=325000,rows=20000,features=50000,seed=0`; what is not named has its default. A few
labels are frequent and most are rare, by Zipf's law: label 0 is the most frequent one. Each label
has a few features of its own; a row has most of those of its labels, and some that mean nothing.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from train.data.assemble import consecutive_parts
from train.data.dataset import MultiLabelData
from train.data.matrices import targets_at
from train.errors import DataError, did_you_mean

NAME = "synthetic"
DEFAULTS = {"labels": 10_000, "rows": 20_000, "features": 50_000, "seed": 0}
LEAST = {"labels": 2, "rows": 10, "features": 10, "seed": 0}
MOST = {"labels": 10**8, "rows": 10**8, "features": 10**8, "seed": 2**32 - 1}
MOST_LABELS_OF_A_ROW = 5
FEATURES_OF_A_LABEL = 5
SEEN_SHARE = 0.8
"""Of a label's features, in each row that has the label."""
NOISE = 10
"""Features of a row that mean nothing, at most."""
TEST_SHARE = 0.1


def read_synthetic(options: str) -> MultiLabelData:
    """Generate the rows that the options, `labels=1000,seed=1`, ask for; always the same ones.

    Raises:
        DataError: An unknown option, or a number that cannot be used.
    """
    sizes = DEFAULTS | _parsed(options)
    rng = np.random.default_rng(sizes["seed"])
    n_rows, n_labels, n_features = sizes["rows"], sizes["labels"], sizes["features"]
    targets = _targets(rng, n_rows, n_labels)
    held_out = max(1, int(n_rows * TEST_SHARE))
    parts = {"train": n_rows - 2 * held_out, "validation": held_out, "test": held_out}
    changed = (f"_{key}_{sizes[key]}" for key in DEFAULTS if sizes[key] != DEFAULTS[key])
    return MultiLabelData(
        name=NAME + "".join(changed),
        inputs=_inputs(rng, targets, n_features),
        targets=targets,
        labels=tuple(map(str, range(n_labels))),
        published=consecutive_parts(parts),
    )


def _parsed(options: str) -> dict[str, int]:
    sizes = {}
    for word in filter(None, options.split(",")):
        key, equals, value = word.partition("=")
        if key not in DEFAULTS:
            raise DataError(
                f"{NAME} has no option {key!r}; {did_you_mean(key, DEFAULTS)}: "
                f"write {NAME}:labels=1000,rows=5000"
            )
        number = int(value) if equals and value.isdecimal() else -1
        if not LEAST[key] <= number <= MOST[key]:
            raise DataError(
                f"{key} of {NAME} must be a whole number from {LEAST[key]} to {MOST[key]}, "
                f"got {value!r}"
            )
        sizes[key] = number
    return sizes


def _targets(rng: np.random.Generator, n_rows: int, n_labels: int) -> sparse.csr_array:
    """One to five labels a row, drawn by Zipf's law; one drawn twice counts once."""
    counts = rng.integers(1, MOST_LABELS_OF_A_ROW + 1, size=n_rows)
    ends = np.cumsum(1 / np.arange(1, n_labels + 1))
    labels = np.searchsorted(ends, rng.random(counts.sum()) * ends[-1])
    rows = np.repeat(np.arange(n_rows), counts)
    return targets_at(rows, np.minimum(labels, n_labels - 1), (n_rows, n_labels))


def _inputs(
    rng: np.random.Generator, targets: sparse.csr_array, n_features: int
) -> sparse.csr_array:
    """Features of a row's labels and noise, each value positive, rows of length 1."""
    n_rows, n_labels = targets.shape
    own = rng.integers(n_features, size=(n_labels, FEATURES_OF_A_LABEL), dtype=np.int32)
    rows = np.repeat(np.arange(n_rows), np.diff(targets.indptr))
    seen = rng.random((len(rows), FEATURES_OF_A_LABEL)) < SEEN_SHARE
    noise_rows = np.repeat(np.arange(n_rows), rng.integers(NOISE + 1, size=n_rows))
    noise = rng.integers(n_features, size=len(noise_rows), dtype=np.int32)
    rows = np.concatenate([np.repeat(rows, seen.sum(axis=1)), noise_rows])
    columns = np.concatenate([own[targets.indices][seen], noise])
    values = rng.uniform(0.5, 1.5, size=len(rows)).astype(np.float32)
    matrix = sparse.csr_array((values, (rows, columns)), shape=(n_rows, n_features))
    matrix.sum_duplicates()
    squares = np.add.reduceat(np.append(matrix.data**2, 0), matrix.indptr[:-1])
    lengths = np.sqrt(np.where(np.diff(matrix.indptr) > 0, squares, 1))
    matrix.data /= np.repeat(lengths, np.diff(matrix.indptr)).astype(np.float32)
    return matrix
