"""Put a data set together: the label sets of rows become a matrix, published parts become one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from scipy import sparse

from train.data.dataset import Features, MultiLabelData, Texts
from train.data.matrices import targets_at
from train.errors import DataError


def numbered_labels(label_sets: Sequence[Collection[int]], n_labels: int) -> sparse.csr_array:
    """Targets from the column numbers of each row."""
    lengths = [len(numbers) for numbers in label_sets]
    columns = np.fromiter((number for row in label_sets for number in row), np.int64, sum(lengths))
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return targets_at(rows, columns, (len(lengths), n_labels))


def named_labels(
    label_sets: Sequence[Collection[str]],
) -> tuple[tuple[str, ...], sparse.csr_array]:
    """Targets from the label names of each row; the columns are the names found, sorted."""
    labels = sorted({name for names in label_sets for name in names})
    column = {name: number for number, name in enumerate(labels)}
    rows = [[column[name] for name in names] for names in label_sets]
    return tuple(labels), numbered_labels(rows, len(labels))


def consecutive_parts(sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Row numbers of parts that follow one another in this order."""
    ends = np.cumsum(list(sizes.values()))
    return {
        part: np.arange(end - size, end)
        for (part, size), end in zip(sizes.items(), ends, strict=True)
    }


def stack_parts(parts: Mapping[str, MultiLabelData], name: str) -> MultiLabelData:
    """One data set whose published split is these parts, in this order.

    Raises:
        DataError: The parts differ in their labels, their features or their kind.
    """
    first_part, first = next(iter(parts.items()))
    for part, data in parts.items():
        expected = (first.labels, first.features, first.kind, first.n_features)
        if expected != (data.labels, data.features, data.kind, data.n_features):
            raise DataError(
                f"the {part} part of {name} differs from its {first_part} part in labels or "
                f"features: use the files of one and the same source"
            )
    return MultiLabelData(
        name=name,
        inputs=_stacked([data.inputs for data in parts.values()]),
        targets=sparse.vstack([data.targets for data in parts.values()], format="csr"),
        labels=first.labels,
        features=first.features,
        published=consecutive_parts({part: data.n_rows for part, data in parts.items()}),
    )


def _stacked(inputs: Sequence[Features | Texts]) -> Features | Texts:
    if isinstance(inputs[0], list):
        return [text for part in inputs for text in part]
    if any(sparse.issparse(part) for part in inputs):
        return sparse.csr_array(sparse.vstack(inputs, format="csr"))
    return np.concatenate(inputs)
