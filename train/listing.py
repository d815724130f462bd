"""What there is: methods and data sets, as tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from train.data.registry import DatasetInfo, find_files, known
from train.errors import EXIT_OK, ConfigError
from train.usage import method_summaries

ADDRESS_WIDTH = 120


def list_command(console: Console, argv: Sequence[str]) -> int:
    """`python -m train list [methods|datasets]`."""
    tables: dict[str, Callable[[], Table]] = {
        "methods": method_table,
        "datasets": lambda: dataset_table(console.width),
    }
    unknown = [word for word in argv if word not in tables]
    if unknown:
        raise ConfigError(f"cannot list {unknown[0]!r}: python -m train list [methods|datasets]")
    for word in argv or tables:
        console.print(tables[word]())
    return EXIT_OK


def method_table() -> Table:
    """Every method with the first line of its description."""
    table = Table(title="methods", title_justify="left")
    table.add_column("name", style="bold")
    table.add_column("what it is")
    for name, summary in method_summaries().items():
        table.add_row(name, summary)
    return table


def dataset_table(width: int) -> Table:
    """Every known data set: sizes, and whether its files are on this machine."""
    table = Table(title="data sets", title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("name", style="bold", no_wrap=True)
    for column in ("rows", "features", "labels", "a row"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("here", no_wrap=True)
    has_room = width >= ADDRESS_WIDTH
    if has_room:
        table.add_column("where from", overflow="fold", style="dim")
    else:
        table.caption = f"where they come from: shown from {ADDRESS_WIDTH} columns on"
    for info in known().values():
        table.add_row(
            info.name,
            str(info.rows or "?"),
            str(info.features or "text" if info.rows else "?"),
            str(info.labels or "?"),
            f"{info.mean_labels:.2f}" if info.mean_labels else "?",
            _availability(info),
            *([info.page] if has_room else []),
        )
    return table


def _availability(info: DatasetInfo) -> str:
    if info.reader in ("demo", "synthetic"):
        return "embedded"
    if not info.files:
        return "not to be had"
    if len(find_files(info, None, os.environ)) == len(info.files):
        return "yes"
    return "downloads" if all(file.url for file in info.files) else "by hand"
