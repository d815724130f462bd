"""A table as plain values, shown on the page and in the terminal alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import rich.table
from rich.text import Text

Value: TypeAlias = str | float | None
Row: TypeAlias = list[Value]
ABSENT = "-"


@dataclass(frozen=True)
class Column:
    """A heading, and how the numbers below it are written; "" for words."""

    name: str
    form: str = ""


@dataclass(frozen=True)
class Cell:
    """What is shown, and what the column is sorted by."""

    text: str
    key: str


@dataclass(frozen=True)
class Table:
    """Rows of values under columns; None is a value that there is not."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    note: str = ""
    folded: bool = False
    """On the page: long, so shown on demand."""

    def cells(self) -> Iterable[list[Cell]]:
        """Every row as text."""
        for row in self.rows:
            yield [_cell(v, column) for v, column in zip(row, self.columns, strict=True)]

    def without_empty_columns(self) -> Table:
        """Leave out columns in which no row has a value."""
        used = [i for i in range(len(self.columns)) if any(r[i] is not None for r in self.rows)]
        return Table(
            self.title,
            [self.columns[i] for i in used],
            [[row[i] for i in used] for row in self.rows],
            self.note,
            self.folded,
        )


def _cell(value: Value, column: Column) -> Cell:
    if value is None:
        return Cell(ABSENT, "")
    if isinstance(value, str):
        return Cell(value, value)
    return Cell(format(value, column.form or "g"), repr(float(value)))


def for_terminal(table: Table) -> rich.table.Table:
    """The same table for rich."""
    shown = rich.table.Table(title=table.title, title_justify="left", caption_justify="left")
    for column in table.columns:
        shown.add_column(column.name, justify="right" if column.form else "left")
    for row in table.cells():
        shown.add_row(*(Text(cell.text) for cell in row))
    shown.caption = table.note or None
    return shown
