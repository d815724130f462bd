"""`python -m train report RUN...`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from train.errors import EXIT_OK, ConfigError
from train.report.costs import parameter_table, training_table
from train.report.page import comparison_table, make_sections, render, score_table
from train.report.runs import FinishedRun, load_runs
from train.report.study import find_studies
from train.report.tables import for_terminal
from train.run import RunFolder, write_text

DESCRIPTION = "Write tables and plots of finished runs to one HTML page."


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What to report on."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
    """Run folders of finished runs, or their model.pt."""
    out: Path | None = None
    """The page to write; unless told report.html in the first run folder."""


def report_command(console: Console, argv: Sequence[str]) -> int:
    """Read the runs, print the key tables, write the page."""
    options = _parse(argv)
    if not options.runs:
        raise ConfigError("name at least one run folder: python -m train report RUN...")
    runs = load_runs(options.runs)
    out = options.out or RunFolder(runs[0].folder).report
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out} is in no folder that exists: make it, or name another")
    _print_tables(console, runs)
    title = f"Report: {runs[0].name}" if len(runs) == 1 else f"Report of {len(runs)} runs"
    try:
        write_text(out, render(make_sections(runs), title))
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}; choose another --out") from error
    console.print(f"saved {out}", highlight=False, soft_wrap=True)
    return EXIT_OK


def _print_tables(console: Console, runs: Sequence[FinishedRun]) -> None:
    if len(runs) == 1:
        console.print(for_terminal(score_table(runs[0])))
    else:
        for dataset in dict.fromkeys(run.dataset for run in runs):
            group = [run for run in runs if run.dataset == dataset]
            console.print(
                for_terminal(
                    comparison_table(dataset, group), leave_out=("seed", "subset accuracy")
                )
            )
    for study in find_studies(runs):
        console.print(study.title, style="bold")
        console.print(for_terminal(study.table()))
    console.print(for_terminal(parameter_table(runs), leave_out=("data set",)))
    console.print(for_terminal(training_table(runs), leave_out=("data set",)))


def _parse(argv: Sequence[str]) -> ReportOptions:
    try:
        return tyro.cli(
            ReportOptions, prog="python -m train report", description=DESCRIPTION, args=list(argv)
        )
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            Console().print(
                "example: python -m train report runs/demo/ce-0 runs/demo/seal-0", highlight=False
            )
        raise
