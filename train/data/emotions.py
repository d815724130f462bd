"""GoEmotions: tab-separated text, comma-separated label numbers and comment id; names in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from train.data.assemble import consecutive_parts, numbered_labels
from train.data.dataset import MultiLabelData
from train.data.files import open_text
from train.errors import DataError


def read_emotions(
    parts: Mapping[str, Path], label_names: Path, *, name: str = "go_emotions"
) -> MultiLabelData:
    """Read the parts; label number n is line n (from 0) of the file of names.

    Raises:
        DataError: A line is not text, numbers and id, or a number has no name.
    """
    with open_text(label_names) as file:
        labels = tuple(line.strip() for line in file if line.strip())
    texts: list[str] = []
    label_sets: list[list[int]] = []
    sizes = {}
    for part, path in parts.items():
        before = len(texts)
        for text, numbers in _rows(path, len(labels)):
            texts.append(text)
            label_sets.append(numbers)
        sizes[part] = len(texts) - before
    return MultiLabelData(
        name=name,
        inputs=texts,
        targets=numbered_labels(label_sets, len(labels)),
        labels=labels,
        published=consecutive_parts(sizes),
    )


def _rows(path: Path, n_labels: int) -> Iterator[tuple[str, list[int]]]:
    with open_text(path) as file:
        for line_number, line in enumerate(file, 1):
            fields = line.rstrip("\n").split("\t")
            if len(fields) != 3 or not all(word.isdecimal() for word in fields[1].split(",")):
                raise DataError(
                    f"{path}:{line_number} must be a text, comma-separated label numbers and an "
                    f"id, with tabs between them: correct the line"
                )
            numbers = [int(word) for word in fields[1].split(",")]
            if max(numbers) >= n_labels:
                raise DataError(
                    f"{path}:{line_number} has label {max(numbers)}, but the highest of the "
                    f"{n_labels} named labels is {n_labels - 1}: correct the line or name the label"
                )
            yield fields[0], numbers
