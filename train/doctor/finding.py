"""One thing that the doctor found, and the words in which findings name rows and columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
SHOWN = 5
"""Rows or names that a finding lists; of the others it gives the number."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is wrong, where, and what to do.

    An error makes the data set unfit for training or its results wrong; a warning costs quality or
    honesty of the scores; a note is good to know.
    """

    severity: Severity
    what: str
    where: str = ""
    """The first few rows, labels or features concerned; empty where it is the whole data set."""
    advice: str


def rows_named(rows: np.ndarray) -> str:
    """Row numbers as people count them, from 1."""
    return _listed(
        "row" if len(rows) == 1 else "rows", [str(row + 1) for row in rows[:SHOWN]], len(rows)
    )


def columns_named(noun: str, columns: np.ndarray, names: Sequence[str]) -> str:
    """Columns by name, or by number from 0 where the file gave no names, as its format counts."""
    shown = [names[column] if names else str(column) for column in columns[:SHOWN]]
    return _listed(noun if len(columns) == 1 else f"{noun}s", shown, len(columns))


def counted(number: int, one: str, many: str) -> str:
    """The beginning of a sentence: `counted(2, "row has", "rows have")` is '2 rows have'."""
    return f"{number} {one if number == 1 else many}"


def _listed(noun: str, shown: Iterable[str], total: int) -> str:
    rest = f" and {total - SHOWN} more" if total > SHOWN else ""
    return f"{noun} {', '.join(shown)}{rest}"
