"""`python -m train results`: finished runs into the committed CSV files, and those into a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from train.errors import EXIT_OK, ConfigError
from train.evidence import add_results, read_metrics, record_of, run_folders
from train.results_page import results_page
from train.run import write_text

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
    if not options.into.is_dir():
        raise ConfigError(
            f"there is no folder {options.into}: run this in the repository's root, or give --into"
        )
    if options.runs:
        _collect(console, options)
    if options.page is not None:
        try:
            write_text(options.page, results_page(options.into))
        except OSError as error:
            raise ConfigError(f"--page {options.page} cannot be written: {error}") from error
        console.print(f"wrote {options.page}", highlight=False)
    return EXIT_OK


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
