"""What `python -m train data ...` shows: sizes, label frequencies, findings, rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from train.data import MultiLabelData, Split
from train.doctor.finding import SEVERITIES, Finding, counted
from train.doctor.labels import label_counts
from train.doctor.rows import parts_of, row_groups
from train.errors import ConfigError
from train.metrics import slices_by_count
from train.metrics.slices import HEAD_COUNT, TORSO_COUNT

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = str.maketrans(BLOCKS + "│└─", " ..::||##" + "|+-")
BAR_HEIGHT, BAR_WIDTH = 8, 64
SLICES = {
    "head": f"{HEAD_COUNT} rows or more",
    "torso": f"{TORSO_COUNT} to {HEAD_COUNT - 1}",
    "tail": f"fewer than {TORSO_COUNT}",
}
STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}
SHOWN_FEATURES, SHOWN_LABELS, SHOWN_LETTERS = 5, 8, 120


def size_table(data: MultiLabelData) -> Table:
    """Rows, features and labels in numbers."""
    lengths = np.diff(data.targets.indptr)
    table = Table(title=f"data set {data.name}", title_justify="left", show_header=False)
    table.add_row("rows", str(data.n_rows))
    table.add_row("features", _feature_summary(data))
    table.add_row("labels", str(data.n_labels))
    table.add_row(
        "labels a row", f"mean {data.mean_labels:.3f}, min {lengths.min()}, max {lengths.max()}"
    )
    table.add_row("density", f"{data.mean_labels / max(data.n_labels, 1):.5f}")
    table.add_row("distinct label sets", str(len(np.unique(row_groups(data.targets)))))
    return table


def _feature_summary(data: MultiLabelData) -> str:
    if isinstance(data.inputs, list):
        return f"text, {sum(map(len, data.inputs)) / data.n_rows:.0f} characters a row"
    if isinstance(data.inputs, np.ndarray):
        return f"{data.n_features} (dense)"
    return f"{data.n_features} (sparse, {data.inputs.nnz / data.n_rows:.1f} not 0 in a row)"


def split_table(data: MultiLabelData, split: Split) -> Table:
    """Each part: its rows, its labels a row, and how many labels have a row in it."""
    table = Table(title=f"split {split.rule}", title_justify="left")
    table.add_column("part")
    for column in ("rows", "labels a row", "labels with rows"):
        table.add_column(column, justify="right")
    for name, rows in parts_of(split).items():
        counts = label_counts(data, rows)
        mean = counts.sum() / max(len(rows), 1)
        table.add_row(name, str(len(rows)), f"{mean:.3f}", str(np.count_nonzero(counts)))
    return table


def slice_table(data: MultiLabelData, split: Split) -> Table:
    """Head, torso and tail: how many labels, and which share of all that train rows have."""
    counts = label_counts(data, split.train)
    table = Table(title="labels by their train rows", title_justify="left")
    table.add_column("slice")
    table.add_column("labels", justify="right")
    table.add_column("share of all labels in train", justify="right")
    for name, mask in slices_by_count(counts).items():
        share = counts[mask].sum() / max(counts.sum(), 1)
        table.add_row(f"{name}, {SLICES[name]}", str(mask.sum()), f"{share:.1%}")
    return table


def frequency_bars(counts: np.ndarray, *, width: int, height: int) -> list[str]:
    """Lines of a bar chart: rows of each label, most frequent first, on a log scale.

    A bar stands for one label or, where there are more labels than `width`, for the median of
    neighbours. One row is the lowest block, no row is blank. Each line bears the count at its top.
    """
    ranked = np.sort(counts)[::-1]
    bars = [float(np.median(bin_)) for bin_ in np.array_split(ranked, min(width, len(ranked)))]
    steps, top = 8 * height, max(float(ranked[0]), 2.0)
    levels = [round(1 + (steps - 1) * np.log(c) / np.log(top)) if c >= 1 else 0 for c in bars]
    lines = []
    for line in reversed(range(height)):
        count = top ** ((8 * line + 7) / (steps - 1))
        blocks = "".join(BLOCKS[min(max(level - 8 * line, 0), 8)] for level in levels)
        lines.append(f"{count:>9.{0 if count >= 10 else 1}f} │{blocks}")
    lines.append(f"{'':>9} └{'─' * len(bars)}")
    lines.append(f"{'':>9}  rank 1 to {len(ranked)}")
    return lines


def print_bars(console: Console, counts: np.ndarray) -> None:
    """Print the bar chart, in ASCII where the console knows nothing else."""
    console.print("rows of each label, most frequent first, log scale")
    for line in frequency_bars(counts, width=BAR_WIDTH, height=BAR_HEIGHT):
        shown = line.translate(ASCII) if console.options.ascii_only else line
        console.print(shown, highlight=False, markup=False)


def save_frequency_plot(data: MultiLabelData, path: Path) -> None:
    """Draw rows of each label by rank, on log axes, to a picture file.

    Raises:
        ConfigError: matplotlib is not installed, or cannot write such a file there.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and only this needs it
    except ModuleNotFoundError as error:
        raise ConfigError('--plot needs matplotlib: pip install "labelwright[report]"') from error
    counts = label_counts(data)
    ranked = np.sort(counts[counts > 0])[::-1]  # a log axis has no place for 0
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot(
        xscale="log", yscale="log", title=data.name, xlabel="rank of label", ylabel="rows"
    )
    axes.plot(np.arange(1, len(ranked) + 1), ranked, marker=".", linewidth=1)
    axes.grid(alpha=0.3)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--plot {path} cannot be written ({error}): name a .png file in a folder that exists"
        ) from error


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print the gravest first, unwrapped so that lines can be searched, and then the totals."""
    for finding in sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)):
        where = f": {finding.where}" if finding.where else ""
        _print(console, (f"{finding.severity:<8}", STYLES[finding.severity]), finding.what, where)
        _print(console, f"{'':<8}do: {finding.advice}")
    numbers = {
        severity: sum(finding.severity == severity for finding in findings)
        for severity in SEVERITIES
    }
    totals = [counted(number, name, f"{name}s") for name, number in numbers.items() if number]
    _print(console, f"found {', '.join(totals) or 'nothing suspicious'}")


def _print(console: Console, *parts: str | tuple[str, str]) -> None:
    console.print(Text.assemble(*parts), soft_wrap=True, highlight=False)


def row_table(data: MultiLabelData, split: Split, rows: range) -> Table:
    """Some rows: number from 1, part, what the model sees, labels."""
    table = Table(title=f"data set {data.name}, {data.n_rows} rows", title_justify="left")
    table.add_column("row", justify="right")
    for column in ("part", "text" if data.kind == "text" else "features that are not 0", "labels"):
        table.add_column(column, overflow="fold")
    for row in rows:
        part = next(
            (name for name, members in parts_of(split).items() if row in members), "left out"
        )
        start, end = data.targets.indptr[row : row + 2]
        labels = [data.labels[label] for label in data.targets.indices[start:end]]
        words = _shortened(labels, SHOWN_LABELS) or "none"
        table.add_row(str(row + 1), part, Text(_input_summary(data, row)), Text(words))
    return table


def _input_summary(data: MultiLabelData, row: int) -> str:
    if isinstance(data.inputs, list):
        text = " ".join(data.inputs[row].split())
        return text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]}..."
    values = data.inputs[[row]]
    dense = (values if isinstance(values, np.ndarray) else values.toarray()).ravel()
    columns = np.flatnonzero(dense)
    names = [data.features[c] if data.features else str(c) for c in columns]
    pairs = [f"{name}={dense[c]:g}" for name, c in zip(names, columns, strict=True)]
    return _shortened(pairs, SHOWN_FEATURES) or "none"


def _shortened(words: Sequence[str], most: int) -> str:
    rest = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(islice(words, most)) + rest
