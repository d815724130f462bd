"""`python -m train results`: finished runs into the committed CSV files, and those into a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from train.compare_display import score_title
from train.errors import EXIT_OK, ConfigError, needs_extra
from train.evidence import add_results, all_results, read_metrics, record_of, run_folders
from train.results_page import results_page, sweep_figure_name, swept_scores
from train.run import write_text
from train.standings_page import figure_name, standings_by_field
from train.sweeps import find_sweeps

DESCRIPTION = """\
Add finished runs to the results, one row a run in a CSV file a data set; a run with the same \
settings and seed replaces the earlier one. Or write the page that shows all of them."""
EXAMPLE = "python -m train results runs/demo"


@dataclass(frozen=True, kw_only=True)
class ResultsOptions:
    """Which runs, and where their rows go."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")] = ()
    """Run folders, or folders with run folders anywhere below."""
    into: Path = Path("train/results")
    """Folder of the CSV files."""
    page: Path | None = None
    """Write the page of all results to this file."""


def results_command(console: Console, argv: Sequence[str]) -> int:
    """Collect runs, write the page, or both."""
    options = _parse(console, argv)
    if not options.runs and options.page is None:
        raise ConfigError(f"name run folders to add, or --page FILE to write: {EXAMPLE}")
    all_results(options.into)  # refuses what is no folder of results before any work
    if options.runs:
        _collect(console, options)
    if options.page is not None:
        try:
            _write_page(options.page, options.into)
        except OSError as error:
            raise ConfigError(f"--page {options.page} cannot be written: {error}") from error
        console.print(f"wrote {options.page}", highlight=False)
    return EXIT_OK


def _write_page(page: Path, results: Path) -> None:
    """The page, and beside it figures: of standings over data sets, of sweeps."""
    records = [record for rows in all_results(results).values() for record in rows]
    standings, sweeps = standings_by_field(records), find_sweeps(records)
    if standings or sweeps:
        with needs_extra("report", "the figures of the page"):
            from train.report.ranking import (  # noqa: PLC0415 - may be missing
                critical_difference_diagram,
            )
            from train.report.sweep import sweep_curves  # noqa: PLC0415 - may be missing
        for field, by_score in standings.items():
            score, stands = next(iter(by_score.items()))
            figure = critical_difference_diagram(stands, f"mean rank by {score_title(score)}")
            write_text(page.with_name(figure_name(page.stem, field)), figure)
        for sweep in sweeps:
            figure = sweep_curves(sweep, swept_scores(sweep))
            write_text(page.with_name(sweep_figure_name(page.stem, sweep)), figure)
    write_text(page, results_page(results, page.stem))


def _collect(console: Console, options: ResultsOptions) -> None:
    found = {folder: read_metrics(folder) for folder in run_folders(options.runs)}
    for folder, metrics in found.items():
        if not metrics["finished"]:
            console.print(f"left out {folder}: it is not finished", highlight=False, markup=False)
    records = [record_of(metrics) for metrics in found.values() if metrics["finished"]]
    for path, rows in add_results(records, options.into).items():
        console.print(f"{path}: {rows} rows", highlight=False)


def _parse(console: Console, argv: Sequence[str]) -> ResultsOptions:
    try:
        return tyro.cli(
            ResultsOptions,
            prog="python -m train results",
            description=DESCRIPTION,
            args=list(argv),
        )
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            console.print(f"example: {EXAMPLE}", highlight=False)
        raise
