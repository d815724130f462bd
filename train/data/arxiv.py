"""arXiv metadata as JSON lines: title and summary are the text, subject categories the labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from train.data.assemble import named_labels
from train.data.dataset import MultiLabelData
from train.data.table_files import Table, read_columns

Cell = TypeVar("Cell")

# Authors may add ACM and MSC codes such as I.4 and 68T45, which are not subjects of arXiv.
SUBJECT = re.compile(r"[a-z-]+(\.[A-Za-z-]+)?")


def read_arxiv(paths: Sequence[Path], *, name: str) -> MultiLabelData:
    """Read the papers of all files, in this order.

    Raises:
        DataError: A line lacks title, summary or categories, or one of them is of the wrong type.
    """
    texts: list[str] = []
    label_sets: list[list[str]] = []
    for path in paths:
        table = read_columns(path)
        titles, summaries = _column(table, "title", str), _column(table, "summary", str)
        texts += [f"{a.strip()}\n{b.strip()}" for a, b in zip(titles, summaries, strict=True)]
        for codes in _column(table, "categories", list):
            label_sets.append([code for code in codes if SUBJECT.fullmatch(str(code))])
    labels, targets = named_labels(label_sets)
    return MultiLabelData(name=name, inputs=texts, targets=targets, labels=labels)


def _column(table: Table, column: str, kind: type[Cell]) -> list[Cell]:
    cells = table.columns.get(column, [None] * table.n_rows)
    values = [cell for cell in cells if isinstance(cell, kind)]
    if len(values) != len(cells):
        row = next(row for row, cell in enumerate(cells) if not isinstance(cell, kind))
        raise table.error(row, f"{column!r} must be there and a {kind.__name__}")
    return values
