"""Features: columns that carry nothing, too much, or numbers that training cannot use."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from train.data.dataset import Features, MultiLabelData, Split
from train.data.matrices import row_numbers
from train.doctor.finding import Finding, columns_named, counted, rows_named

SPREAD_RATIO = 1e4
"""Beyond this ratio of widest to narrowest range, the narrow features drown unless scaled."""
ID_ROWS = 10
"""In fewer rows whole numbers may well differ by chance."""


def feature_findings(data: MultiLabelData, split: Split) -> list[Finding]:
    """All that can be wrong with features; nothing for text."""
    inputs = data.inputs
    if isinstance(inputs, list) or not inputs.shape[1]:
        return []
    low, high = _ranges(inputs[split.train])
    return [
        *_not_finite(inputs, data.features),
        *_counted_from_one(data, inputs),
        *_constant(low, high, data.features),
        *_identifying(inputs, data.features),
        *_uneven(low, high, is_sparse=sparse.issparse(inputs)),
    ]


def column_counts(inputs: Features) -> np.ndarray:
    """(features,) in how many rows each feature is not 0."""
    if isinstance(inputs, np.ndarray):
        return np.asarray(np.count_nonzero(inputs, axis=0))
    return np.bincount(inputs.indices[inputs.data != 0], minlength=inputs.shape[1])


def _ranges(inputs: Features) -> tuple[np.ndarray, np.ndarray]:
    """(features,) smallest and largest value; NaN if there are no rows."""
    if not inputs.shape[0]:
        return np.full(inputs.shape[1], np.nan), np.full(inputs.shape[1], np.nan)
    if isinstance(inputs, np.ndarray):
        low, high = inputs.min(axis=0), inputs.max(axis=0)
    else:
        low, high = (
            column.toarray().ravel() for column in (inputs.min(axis=0), inputs.max(axis=0))
        )
    return low.astype(np.float64), high.astype(np.float64)


def _not_finite(inputs: Features, names: tuple[str, ...]) -> Iterator[Finding]:
    if isinstance(inputs, np.ndarray):
        rows, columns = np.nonzero(~np.isfinite(inputs))
    else:
        is_bad = ~np.isfinite(inputs.data)
        rows, columns = row_numbers(inputs.indptr)[is_bad], inputs.indices[is_bad]
    if len(rows):
        number = len(rows)
        rows, columns = np.unique(rows), np.unique(columns)
        yield Finding(
            severity="error",
            what=f"{counted(number, 'value is', 'values are')} NaN or infinite",
            where=f"{rows_named(rows)}; {columns_named('feature', columns, names)}",
            advice="fill them or remove the rows: one of them makes every weight NaN",
        )


def _counted_from_one(data: MultiLabelData, inputs: Features) -> Iterator[Finding]:
    """Number 0 unused in a file of numbered features and labels: perhaps its numbers start at 1."""
    numbered = data.labels == tuple(str(number) for number in range(data.n_labels))
    if not sparse.issparse(inputs) or data.features or not numbered:
        return
    labels = np.bincount(data.targets.indices, minlength=data.n_labels)
    features = column_counts(inputs)
    shifted = [
        noun
        for noun, counts in (("feature", features), ("label", labels))
        if len(counts) > 1 and not counts[0] and counts[-1]
    ]
    is_only_gap = any(
        not counts[0] and counts[1:].all() for counts in (features, labels) if len(counts) > 1
    )
    if len(shifted) == 2 or is_only_gap:
        yield Finding(
            severity="warning",
            what=f"{' and '.join(shifted)} number 0 is never used, while the last one is: the file "
            "may count from 1",
            advice=f"if so, subtract 1 from every {' and '.join(shifted)} number",
        )


def _constant(low: np.ndarray, high: np.ndarray, names: tuple[str, ...]) -> Iterator[Finding]:
    columns = np.flatnonzero(low == high)
    if len(columns):
        yield Finding(
            severity="note",
            what=f"{counted(len(columns), 'feature has', 'features have')} the same value in all "
            "train rows",
            where=columns_named("feature", columns, names),
            advice="drop them: nothing can be learned from them",
        )


def _identifying(inputs: Features, names: tuple[str, ...]) -> Iterator[Finding]:
    """Whole numbers that differ in every row; measured values, with fractions, often do."""
    n_rows = inputs.shape[0]
    candidates = np.flatnonzero(column_counts(inputs) >= n_rows - 1)  # 0 can occur once at most
    if n_rows < ID_ROWS or not len(candidates):
        return
    by_column = inputs if isinstance(inputs, np.ndarray) else inputs.tocsc()
    columns = np.array([c for c in candidates if _identifies(by_column[:, [c]])])
    if len(columns):
        yield Finding(
            severity="warning",
            what=f"{counted(len(columns), 'feature is', 'features are')} a different whole number "
            "in every row, as the number or name of a row is",
            where=columns_named("feature", columns, names),
            advice="drop them: a model learns the rows by heart from them",
        )


def _identifies(column: np.ndarray | sparse.csc_array) -> bool:
    values = column.ravel() if isinstance(column, np.ndarray) else column.toarray().ravel()
    is_whole = bool((values == np.floor(values)).all())
    return is_whole and len(np.unique(values)) == len(values)


def _uneven(low: np.ndarray, high: np.ndarray, *, is_sparse: bool) -> Iterator[Finding]:
    is_usable = np.isfinite(low) & np.isfinite(high) & (high > low)
    spread = (high - low)[is_usable]
    if not len(spread) or spread.max() < SPREAD_RATIO * spread.min():
        return
    yield Finding(
        severity="warning" if is_sparse else "note",
        what=f"the ranges of features differ widely, from {spread.min():.3g} to {spread.max():.3g}",
        advice="divide each feature by its largest value: sparse inputs are not scaled"
        if is_sparse
        else "nothing: training scales them to zero mean and unit variance (--scaling auto)",
    )
