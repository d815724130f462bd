"""`python -m train report RUN...`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from train.errors import EXIT_OK, ConfigError
from train.evidence import record_of
from train.report.across import by_setting, comparison_table
from train.report.costs import parameter_table, training_table
from train.report.page import make_sections, render, score_table
from train.report.runs import FinishedRun, load_runs
from train.report.sections import Text
from train.report.study import find_studies
from train.report.tables import for_terminal
from train.run import RunFolder, write_text

__all__ = ["report_command", "report_comparison", "report_run"]

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
    _write(console, out, render(make_sections(runs), title))
    return EXIT_OK


def report_run(console: Console, run: RunFolder) -> None:
    """Write the page of one run into its folder."""
    runs = load_runs([run.path])
    _write(console, run.report, render(make_sections(runs), f"Report: {runs[0].name}"))


def report_comparison(
    console: Console, folders: Sequence[Path], out: Path, command: str, scores: Sequence[str]
) -> None:
    """Write one page of many runs, with details of the first run of each setting.

    command: what made them. scores: columns of the leaderboard.
    """
    runs = load_runs(folders)
    records = [record_of(run.metrics) for run in runs]
    firsts = [members[0] for members in by_setting(records)]
    detailed = [run for run, record in zip(runs, records, strict=True) if record in firsts]
    sections = make_sections(runs, detailed, scores)
    sections[0].parts.insert(0, Text(command, is_code=True))
    title = f"{runs[0].dataset}: {', '.join(dict.fromkeys(run.kind for run in runs))}"
    _write(console, out, render(sections, title))


def _write(console: Console, out: Path, page: str) -> None:
    try:
        write_text(out, page)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}; choose another --out") from error
    console.print(f"saved {out}", highlight=False, soft_wrap=True)


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
