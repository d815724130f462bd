"""What there is: methods and data sets, as tables."""

from __future__ import annotations

import os

from rich import box
from rich.table import Table

from train import methods
from train.data.registry import DatasetInfo, find_files, known

ADDRESS_WIDTH = 120


def method_table() -> Table:
    """Every method with the first line of its description."""
    table = Table(title="methods", title_justify="left")
    table.add_column("name", style="bold")
    table.add_column("what it is")
    for name in methods.available():
        table.add_row(name, methods.summary(methods.load(name)))
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
