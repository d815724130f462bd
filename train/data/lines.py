"""A text file and a label file side by side: line i of one is the text, of the other its labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from train.data.assemble import consecutive_parts, named_labels
from train.data.dataset import MultiLabelData
from train.data.files import open_text
from train.errors import DataError


def read_lines(parts: Mapping[str, tuple[Path, Path]], *, name: str) -> MultiLabelData:
    """Read (text file, label file) of each part; labels are separated by blanks.

    Raises:
        DataError: The two files of a part have different numbers of lines, or a text is empty.
    """
    texts: list[str] = []
    label_sets: list[list[str]] = []
    sizes = {}
    for part, (text_path, label_path) in parts.items():
        part_texts, part_labels = _lines(text_path), _lines(label_path)
        if len(part_texts) != len(part_labels):
            raise DataError(
                f"{text_path} has {len(part_texts)} lines and {label_path} has {len(part_labels)}: "
                f"each text needs its line of labels"
            )
        for number, text in enumerate(part_texts, 1):
            if not text:
                raise DataError(f"{text_path}:{number} is empty: give a text or remove the line")
        texts += part_texts
        label_sets += [line.split() for line in part_labels]
        sizes[part] = len(part_texts)
    labels, targets = named_labels(label_sets)
    return MultiLabelData(
        name=name,
        inputs=texts,
        targets=targets,
        labels=labels,
        published=consecutive_parts(sizes),
    )


def _lines(path: Path) -> list[str]:
    with open_text(path) as file:
        return [line.strip() for line in file]
