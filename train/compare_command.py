"""`python -m train compare`: methods side by side, over seeds, beside the papers' numbers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from train.compare_display import (
    DEFAULT_SCORES,
    check_plot,
    leaderboard,
    paper_table,
    save_low_data_plot,
    save_trade_off_plot,
    score_name,
)
from train.comparison import Comparison, ComparisonOptions, plan, run_all
from train.display import or_say_why_not
from train.errors import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    ConfigError,
    did_you_mean,
    needs_extra,
)
from train.evidence import Record
from train.options import reports_by_default
from train.planned import Outcome, PlannedRun
from train.published import published
from train.runs_display import RunsDisplay

DESCRIPTION = """\
Train methods side by side, each with several seeds, and print a leaderboard, with the papers' \
numbers beside ours where there are any. Runs that are finished are not trained again, and those \
that were interrupted go on: give the same command."""
EXAMPLE = "python -m train compare --dataset demo --methods ce,seal --seeds 2"


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ComparisonOptions):
    """What is compared and how it is shown."""

    metric: Annotated[str, tyro.conf.arg(metavar="METRICS")] = ",".join(DEFAULT_SCORES)
    """Columns; the first one orders the methods. A metric alone is meant at threshold 0.5."""
    plot: Path | None = None
    """Draw to this .png or .svg file: one of two metrics against the other, or with several
    shares the first metric by share of the training rows."""
    baseline: str | None = None
    """The method that --plot divides by; the first one unless told."""
    report: bool = field(default_factory=reports_by_default)
    """Write report.html into the folder of the comparison: all tables, curves and costs."""
    progress: bool = True
    """Show progress."""


def compare_command(console: Console, argv: Sequence[str]) -> int:
    """Train what is missing, then show all."""
    options = _parse(console, argv)
    scores = [score_name(word) for word in options.metric.split(",")]
    if options.plot is not None:
        check_plot(options.plot, len(options.shares()), len(scores))
    comparison = plan(options)
    baseline = _baseline(options, comparison)
    if comparison.finished:
        console.print(f"{len(comparison.finished)} of {len(comparison.runs)} runs were finished")
    display = RunsDisplay(
        console, comparison.runs, done=len(comparison.finished), enabled=options.progress
    )
    with display.progress:
        records, others = run_all(comparison, options.jobs, display)
    _print_tables(console, comparison, list(records.values()), scores)
    if options.plot is not None and records:
        _draw(options.plot, list(records.values()), scores, baseline)
    if options.report and records:
        command = shlex.join(["python", "-m", "train", "compare", *argv])
        folders = [run.folder.path for run in records]
        with or_say_why_not(console), needs_extra("report", "a report"):
            from train.report.command import report_comparison  # noqa: PLC0415 - may be missing

            report_comparison(console, folders, comparison.out / "report.html", command, scores)
    return _exit_code(console, comparison, records, others)


def _draw(path: Path, records: list[Record], scores: list[str], baseline: str) -> None:
    if len({record.fraction for record in records}) > 1:
        save_low_data_plot(path, records, scores[0], baseline)
    else:
        save_trade_off_plot(path, records, scores)


def _parse(console: Console, argv: Sequence[str]) -> CompareOptions:
    try:
        return tyro.cli(
            CompareOptions,
            prog="python -m train compare",
            description=DESCRIPTION,
            args=list(argv),
        )
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            console.print(f"example: {EXAMPLE}", highlight=False, soft_wrap=True)
        raise


def _baseline(options: CompareOptions, comparison: Comparison) -> str:
    names = list(dict.fromkeys(run.name for run in comparison.runs))
    if options.baseline is None:
        return names[0]
    if options.baseline not in names:
        hint = did_you_mean(options.baseline, names)
        raise ConfigError(f"--baseline {options.baseline} is none of the methods; {hint}")
    return options.baseline


def _print_tables(
    console: Console, comparison: Comparison, records: list[Record], scores: list[str]
) -> None:
    for share in dict.fromkeys(record.fraction for record in records):
        members = [record for record in records if record.fraction == share]
        rows = "" if share == 1 else f", {share:g} of the training rows"
        title = f"{comparison.dataset}, split {members[0].split}{rows}"
        console.print(title, style="bold", highlight=False, markup=False, soft_wrap=True)
        console.print(leaderboard(members, scores))
        papers = paper_table(members, published(comparison.dataset)) if share == 1 else None
        if papers is not None:
            console.print("beside the papers", style="bold")
            console.print(papers)


def _exit_code(
    console: Console,
    comparison: Comparison,
    records: dict[PlannedRun, Record],
    others: dict[PlannedRun, Outcome],
) -> int:
    failed = {run: outcome for run, outcome in others.items() if outcome.state == "failed"}
    for reason in dict.fromkeys(outcome.reason for outcome in failed.values()):
        runs = "; ".join(str(run) for run, outcome in failed.items() if outcome.reason == reason)
        sys.stderr.write(f"error: {reason} ({runs})\n")
    if any(outcome.state == "interrupted" for outcome in others.values()):
        left = len(comparison.runs) - len(records)
        console.print(f"interrupted with {left} runs to go: the same command goes on", markup=False)
        return EXIT_INTERRUPTED
    if others:
        return EXIT_USAGE
    folder = shlex.quote(str(comparison.out))
    console.print("Add these runs to the committed results:", highlight=False)
    console.print(f"  python -m train results {folder}", highlight=False, soft_wrap=True)
    return EXIT_OK
