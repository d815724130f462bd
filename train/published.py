"""Numbers that papers have published: `train/papers/PAPER/`, a table for each score."""

from __future__ import annotations

import csv
import functools
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

PAPERS = Path(__file__).parent / "papers"
CELL = re.compile(r"(?P<value>\d*\.\d+)(±(?P<deviation>\d*\.\d+))?(?P<doubt>\?)?")


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Where numbers come from, and how they were made."""

    name: str
    citation: str
    scale: float
    """The tables' numbers are ours times this."""
    split: str
    protocol: str
    """How scores became label sets."""
    note: str
    other_splits: dict[str, str] = field(default_factory=dict)
    """By data set, where it is not `split`."""

    def split_of(self, dataset: str) -> str:
        """The rule by which the paper cut this data set."""
        return self.other_splits.get(dataset, self.split)


@dataclass(frozen=True, kw_only=True)
class Published:
    """One number of a paper, on our scale from 0 to 1."""

    paper: Paper
    value: float
    deviation: float | None
    is_doubtful: bool


Numbers = dict[str, dict[str, Published]]
"""By method, such as `seal:nce`, and score, such as `fixed.example_f1`."""


def published(dataset: str) -> Numbers:
    """All numbers for a data set; empty where there are none."""
    return _all_numbers().get(dataset, {})


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a paper has numbers of."""

    paper: Paper
    datasets: frozenset[str]
    scores: frozenset[str]


def reports() -> list[Report]:
    """Every paper with numbers of methods we have, by name."""
    cells = [
        (number.paper.name, number.paper, dataset, score)
        for dataset, methods in _all_numbers().items()
        for row in methods.values()
        for score, number in row.items()
    ]
    papers = {name: paper for name, paper, _, _ in cells}
    return [
        Report(
            paper=papers[name],
            datasets=frozenset(dataset for n, _, dataset, _ in cells if n == name),
            scores=frozenset(score for n, _, _, score in cells if n == name),
        )
        for name in sorted(papers)
    ]


def leaderboard(dataset: str, split: str) -> Numbers:
    """What programs other than ours reach on rows that everybody shares; empty for other rows."""
    return _leaderboards().get((dataset, split), {})


@functools.cache
def _all_numbers() -> dict[str, Numbers]:
    numbers: dict[str, Numbers] = {}
    for folder in sorted(path.parent for path in PAPERS.glob("*/paper.toml")):
        paper = Paper(**tomllib.loads((folder / "paper.toml").read_text(encoding="utf-8")))
        for table in sorted(folder.glob("*.csv")):
            with table.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    method = row.pop("method")
                    for dataset, cell in row.items():
                        if cell:
                            found = numbers.setdefault(dataset, {}).setdefault(method, {})
                            found[table.stem] = _number(cell, paper, table)
    return numbers


@functools.cache
def _leaderboards() -> dict[tuple[str, str], Numbers]:
    boards: dict[tuple[str, str], Numbers] = {}
    for described in sorted(PAPERS.glob("*/leaderboard.toml")):
        paper = Paper(**tomllib.loads(described.read_text(encoding="utf-8")))
        table = described.with_suffix(".csv")
        with table.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                board = boards.setdefault((row.pop("dataset"), row.pop("split")), {})
                method = row.pop("method")
                board[method] = {s: _number(cell, paper, table) for s, cell in row.items() if cell}
    return boards


def _number(cell: str, paper: Paper, table: Path) -> Published:
    match = CELL.fullmatch(cell)
    if match is None:
        raise ValueError(f"{table} holds {cell!r}, which is no number")
    deviation = match["deviation"]
    return Published(
        paper=paper,
        value=float(match["value"]) / paper.scale,
        deviation=None if deviation is None else float(deviation) / paper.scale,
        is_doubtful=match["doubt"] is not None,
    )
