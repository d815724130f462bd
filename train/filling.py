"""Which rows the committed results should have, and the runs that would give the missing ones.

`train/results/plan.toml` names them table by table:

    [[tables]]
    dataset = "yeast"
    split = "80/10/10"
    methods = ["br", "seal:nce"]
    preset = "auto"              # unless told
    options = ["--no-kl"]        # further flags of `python -m train METHOD`; none unless told
    fraction = 1.0               # share of the training rows
    seeds = 3
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.config import config_from
from train.errors import ConfigError
from train.evidence import all_results, changed_settings
from train.planned import PlannedRun, draft, method_and_kind, placed


@dataclass(frozen=True, kw_only=True)
class WantedTable:
    """Methods on the same rows, each with several seeds."""

    dataset: str
    split: str
    methods: tuple[str, ...]
    preset: str = "auto"
    options: tuple[str, ...] = ()
    fraction: float = 1.0
    seeds: int = 3

    def __str__(self) -> str:
        share = [] if self.fraction == 1 else [f"{self.fraction:g} of the rows"]
        preset = [] if self.preset == "auto" else [f"preset {self.preset}"]
        return " ".join([self.dataset, self.split, *preset, *self.options, *share])

    @property
    def folder(self) -> str:
        """Where its runs go: a name no other table has."""
        return re.sub(r"[^\w.]+", "-", str(self))


@dataclass(frozen=True, kw_only=True)
class WantedRow:
    """A row that the results should have, and the run that gives it."""

    table: str
    run: PlannedRun
    key: tuple[Any, ...]
    """As of `Record`."""


def read_plan(path: Path) -> list[WantedTable]:
    """The tables of a plan."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return [config_from(table, WantedTable, source=str(path)) for table in content["tables"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is no plan of results: {error}") from error


def wanted_rows(tables: Sequence[WantedTable], out: Path) -> list[WantedRow]:
    """All rows of the tables, first seeds first, so that early rows show something of each."""
    rows = [row for table in tables for row in _rows(table, out)]
    return sorted(rows, key=lambda row: row.run.options.seed)


def _rows(table: WantedTable, out: Path) -> Iterator[WantedRow]:
    words = ["--dataset", table.dataset, "--split", table.split]
    words += ["--preset", table.preset] if table.preset != "auto" else []
    for name in table.methods:
        run = draft(*method_and_kind(name), [*words, *table.options])
        changed = changed_settings(run.method, run.config, table.dataset, table.preset)
        rows_of_table = table.dataset, table.split, run.options.split_seed, table.fraction
        for seed in range(table.seeds):
            yield WantedRow(
                table=str(table),
                run=placed(run, fraction=table.fraction, seed=seed, out=out / table.folder),
                key=(*rows_of_table, run.name, table.preset, changed, seed),
            )


def missing_rows(wanted: Sequence[WantedRow], results: Path) -> list[WantedRow]:
    """Those that no file of results has."""
    there = {record.key for rows in all_results(results).values() for record in rows}
    return [row for row in wanted if row.key not in there]


def likely_seconds(wanted: Sequence[WantedRow], results: Path) -> dict[WantedRow, float]:
    """How long rows took to train with another seed, of those of which one is there."""
    took: dict[tuple[Any, ...], list[float]] = {}
    for record in (record for rows in all_results(results).values() for record in rows):
        took.setdefault(record.key[:-1], []).append(record.seconds)
    found = {row: took[row.key[:-1]] for row in wanted if row.key[:-1] in took}
    return {row: sum(seconds) / len(seconds) for row, seconds in found.items()}
