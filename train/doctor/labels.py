"""Labels: how many rows each has, in which part."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from train.data.dataset import MultiLabelData, Split
from train.doctor.finding import Finding, columns_named, counted

PARTS = 3
"""A label with fewer rows than this is missing in some part."""


def label_findings(data: MultiLabelData, split: Split) -> list[Finding]:
    """All that can be wrong with labels."""
    if not data.targets.nnz:
        return [
            Finding(
                severity="error",
                what="no row has any label",
                advice="check that the right columns were taken for labels (--label-columns)",
            )
        ]
    if data.image is not None:  # pixels at the edge of every image are no mistake
        return []
    return [
        *_unused(data),
        *_not_in_train(data, split),
        *_rare(data),
        *_everywhere(data),
        *_many(data),
    ]


def label_counts(data: MultiLabelData, rows: np.ndarray | None = None) -> np.ndarray:
    """(labels,) how many of the rows, all unless told, have each label."""
    targets = data.targets if rows is None else data.targets[rows]
    return np.bincount(targets.indices, minlength=data.n_labels)


def _unused(data: MultiLabelData) -> Iterator[Finding]:
    labels = np.flatnonzero(label_counts(data) == 0)
    if len(labels):
        yield Finding(
            severity="warning",
            what=counted(len(labels), "label has no row", "labels have no row"),
            where=columns_named("label", labels, data.labels),
            advice="drop them: nothing can be learned or measured about them",
        )


def _not_in_train(data: MultiLabelData, split: Split) -> Iterator[Finding]:
    in_train, in_validation, in_test = (
        label_counts(data, rows) > 0 for rows in (split.train, split.validation, split.test)
    )
    labels = np.flatnonzero(~in_train & (in_validation | in_test))
    if len(labels):
        yield Finding(
            severity="warning",
            what=f"{counted(len(labels), 'label has', 'labels have')} no train row, but rows in "
            f"test ({in_test[labels].sum()}) or validation ({in_validation[labels].sum()})",
            where=columns_named("label", labels, data.labels),
            advice="add train rows for them, or drop them: they can only lower the scores",
        )


def _rare(data: MultiLabelData) -> Iterator[Finding]:
    counts = label_counts(data)
    labels = np.flatnonzero((counts > 0) & (counts < PARTS))
    if len(labels):
        yield Finding(
            severity="note",
            what=f"{counted(len(labels), 'label has', 'labels have')} fewer than {PARTS} rows",
            where=columns_named("label", labels, data.labels),
            advice="expect nothing of their scores: they cannot be in train, validation and test",
        )


def _everywhere(data: MultiLabelData) -> Iterator[Finding]:
    labels = np.flatnonzero(label_counts(data) == data.n_rows)
    if len(labels):
        yield Finding(
            severity="warning",
            what=f"every row has {counted(len(labels), 'label', 'labels')} in common",
            where=columns_named("label", labels, data.labels),
            advice="drop them: there is nothing to tell apart",
        )


def _many(data: MultiLabelData) -> Iterator[Finding]:
    if data.n_rows < data.n_labels:
        yield Finding(
            severity="note",
            what=f"there are fewer rows ({data.n_rows}) than labels ({data.n_labels})",
            advice="judge by ranking metrics such as P@k, and look at the tail on its own",
        )
