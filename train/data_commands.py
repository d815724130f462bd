"""`python -m train data ...`: look at a data set before training on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import tyro
from rich.console import Console

from train.data import MultiLabelData, Split
from train.data_display import (
    print_bars,
    print_findings,
    row_table,
    save_frequency_plot,
    size_table,
    slice_table,
    split_table,
)
from train.doctor import examine
from train.doctor.files import failure_findings, file_findings
from train.doctor.labels import label_counts
from train.errors import EXIT_OK, EXIT_USAGE, ConfigError, DataError, did_you_mean
from train.options import DataOptions
from train.preparing import load_split

USAGE = """\
usage: python -m train data COMMAND NAME|FILE [options]

commands
  check  examine a data set: sizes, label frequencies, everything suspicious
  show   a few rows with their labels

example: python -m train data check demo"""

CHECK_DESCRIPTION = """\
Examine a data set: sizes, split, label frequencies, and everything suspicious. \
Rows are counted from 1. \
Exit code: 0 if there is no error among the findings (warnings and notes are none), \
2 if there is one or the data set cannot be read."""
SHOW_DESCRIPTION = "Show a few rows of a data set with their labels. Rows are counted from 1."


@dataclass(frozen=True, kw_only=True)
class CheckOptions(DataOptions):
    """What to examine."""

    plot: Path | None = None
    """Also draw rows of each label by rank to this .png file."""


@dataclass(frozen=True, kw_only=True)
class ShowOptions(DataOptions):
    """What to show."""

    rows: int = 5
    """How many rows."""
    start: int = 1
    """Number of the first of them."""

    def __post_init__(self) -> None:
        for name in ("rows", "start"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} must be positive, got {getattr(self, name)}")


OptionsT = TypeVar("OptionsT", bound=DataOptions)


def data_command(console: Console, argv: Sequence[str]) -> int:
    """Run `check` or `show`."""
    commands: dict[str, Callable[[Console, Sequence[str]], int]] = {"check": _check, "show": _show}
    if not argv or argv[0] in ("-h", "--help"):
        console.print(USAGE, highlight=False, markup=False)
        return EXIT_OK if argv else EXIT_USAGE
    if argv[0] not in commands:
        hint = did_you_mean(argv[0], commands)
        raise ConfigError(f"there is no command `data {argv[0]}`: {hint}")
    return commands[argv[0]](console, argv[1:])


def _check(console: Console, argv: Sequence[str]) -> int:
    options = _parse(console, CheckOptions, "check", CHECK_DESCRIPTION, argv)
    try:
        data, split = load_split(options)
    except DataError as error:
        print_findings(console, failure_findings(error, options.dataset))
        return EXIT_USAGE
    if options.plot is not None:
        save_frequency_plot(data, options.plot)
    _print_sizes(console, data, split)
    findings = examine(data, split)
    findings += file_findings(options.dataset, options.data_dir, data.labels)
    print_findings(console, findings)
    return EXIT_USAGE if any(finding.severity == "error" for finding in findings) else EXIT_OK


def _print_sizes(console: Console, data: MultiLabelData, split: Split) -> None:
    console.print(size_table(data))
    console.print(split_table(data, split))
    if data.n_labels:
        print_bars(console, label_counts(data))
        console.print(slice_table(data, split))


def _show(console: Console, argv: Sequence[str]) -> int:
    options = _parse(console, ShowOptions, "show", SHOW_DESCRIPTION, argv)
    data, split = load_split(options)
    if options.start > data.n_rows:
        raise ConfigError(
            f"--start {options.start} is beyond the {data.n_rows} rows of {data.name}"
        )
    end = min(options.start - 1 + options.rows, data.n_rows)
    console.print(row_table(data, split, range(options.start - 1, end)))
    return EXIT_OK


def _parse(
    console: Console,
    options: type[OptionsT],
    command: str,
    description: str,
    argv: Sequence[str],
) -> OptionsT:
    try:
        return tyro.cli(
            options,
            prog=f"python -m train data {command}",
            description=description,
            args=list(argv),
            config=(tyro.conf.PositionalRequiredArgs,),
        )
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            console.print(f"example: python -m train data {command} demo", highlight=False)
        raise
