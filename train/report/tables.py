"""A table as plain values, shown on the page and in the terminal alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import rich.table
from rich import box
from rich.text import Text

from train.evidence import Mean

Value: TypeAlias = str | float | Mean | None
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
    if isinstance(value, Mean):
        # Where space is short the line breaks before the ± and nowhere else.
        return Cell(str(value).replace("± ", "±\N{NO-BREAK SPACE}"), repr(value.value))
    return Cell(format(value, column.form or "g"), repr(float(value)))


def for_terminal(table: Table, leave_out: Sequence[str] = ()) -> rich.table.Table:
    """The same table for rich, in 80 columns if it can be; some columns may be left out."""
    shown = rich.table.Table(
        title=table.title,
        title_justify="left",
        caption=table.note or None,
        caption_justify="left",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    kept = [i for i, column in enumerate(table.columns) if column.name not in leave_out]
    for column in (table.columns[i] for i in kept):
        # A heading breaks between words, a number never.
        heading = column.name.replace(" ", "\n").replace("-", "-\n") if column.form else column.name
        shown.add_column(
            heading, justify="right" if column.form else "left", no_wrap=True, vertical="bottom"
        )
    for row in table.cells():
        shown.add_row(*(Text(row[i].text) for i in kept))
    return shown
