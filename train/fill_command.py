"""`python -m train fill`: train the runs whose rows the committed results lack."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from train.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, ConfigError, did_you_mean
from train.evidence import add_results, read_metrics, record_of
from train.filling import WantedRow, likely_seconds, missing_rows, read_plan, wanted_rows
from train.planned import Outcome, PlannedRun
from train.running import train_all
from train.runs_display import RunsDisplay

DESCRIPTION = """\
Train what the plan of results names and no row shows yet, and add each run's row as soon as it is \
finished. What was interrupted goes on: give the same command. To stop in time, put `timeout 2h` \
before it."""
EXAMPLE = "python -m train fill --list"


@dataclass(frozen=True, kw_only=True)
class FillOptions:
    """Which rows, and how."""

    datasets: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = ()
    """Data sets to fill; all of the plan unless told."""
    list: bool = False
    """Train nothing: show how many rows are missing, and how long they are likely to take."""
    jobs: int = 1
    """Runs at the same time, each in a process of its own with one thread."""
    plan: Path = Path("train/results/plan.toml")
    """What should be there."""
    into: Path = Path("train/results")
    """Folder of the CSV files."""
    out: Path = Path("runs/fill")
    """Folder of the run folders."""
    progress: bool = True
    """Show progress."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ConfigError(f"--jobs must be at least 1, got {self.jobs}")


class _Collecting(RunsDisplay):
    """Adds the row of each run as soon as it is finished."""

    def __init__(self, console: Console, options: FillOptions, rows: Sequence[WantedRow]) -> None:
        super().__init__(console, [row.run for row in rows], done=0, enabled=options.progress)
        self.into = options.into

    def ended(self, run: PlannedRun, outcome: Outcome) -> None:
        if outcome.state == "finished":
            add_results([record_of(read_metrics(run.folder.path))], self.into)
        super().ended(run, outcome)


def fill_command(console: Console, argv: Sequence[str]) -> int:
    """Show what is missing, or train it."""
    options = _parse(console, argv)
    wanted = _wanted(options)
    missing = missing_rows(wanted, options.into)
    if options.list:
        console.print(_overview(wanted, missing, options.into))
        return EXIT_OK
    console.print(f"{len(missing)} of {len(wanted)} rows are missing", highlight=False)
    display = _Collecting(console, options, missing)
    with display.progress:
        outcomes = train_all([row.run for row in missing], options.jobs, display)
    failed = {run: outcome for run, outcome in outcomes.items() if outcome.state == "failed"}
    for run, outcome in failed.items():
        sys.stderr.write(f"error: {outcome.reason} ({run.options.dataset}: {run})\n")
    if any(outcome.state == "interrupted" for outcome in outcomes.values()):
        console.print("interrupted: the same command goes on")
        return EXIT_INTERRUPTED
    return EXIT_USAGE if failed else EXIT_OK


def _parse(console: Console, argv: Sequence[str]) -> FillOptions:
    try:
        return tyro.cli(
            FillOptions, prog="python -m train fill", description=DESCRIPTION, args=list(argv)
        )
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            console.print(f"example: {EXAMPLE}", highlight=False)
        raise


def _wanted(options: FillOptions) -> list[WantedRow]:
    tables = read_plan(options.plan)
    known = dict.fromkeys(table.dataset for table in tables)
    for name in options.datasets:
        if name not in known:
            raise ConfigError(f"{options.plan} has no table of {name}; {did_you_mean(name, known)}")
    chosen = options.datasets or known
    return wanted_rows([table for table in tables if table.dataset in chosen], options.out)


def _overview(wanted: Sequence[WantedRow], missing: Sequence[WantedRow], results: Path) -> Table:
    """A line for each table of methods; time is of those with a run to go by."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("rows")
    for column in ("wanted", "missing", "likely minutes"):
        table.add_column(column, justify="right")
    seconds = likely_seconds(missing, results)
    lacking = set(missing)
    for name, rows in _by_table(wanted).items():
        left = [row for row in rows if row in lacking]
        unknown = sum(row not in seconds for row in left)
        minutes = f"{sum(seconds.get(row, 0) for row in left) / 60:.0f}"
        told = f"{minutes} + {unknown} unknown" if unknown else minutes
        table.add_row(name, str(len(rows)), str(len(left)), told)
    return table


def _by_table(rows: Sequence[WantedRow]) -> dict[str, list[WantedRow]]:
    tables: dict[str, list[WantedRow]] = {}
    for row in rows:
        tables.setdefault(row.table, []).append(row)
    return tables
