"""`python -m serve bench BUNDLE...`: how fast each bundle answers, side by side in one run.

The twin of the inference table in the SEAL paper: an energy network that must be asked by gradient
descent beside a task-net that answers in one pass. HTTP is left out: this is the model alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from export.bundle import load_bundle
from serve.bench_labels import race, race_table
from serve.predictor import OnnxPredictor
from train.errors import EXIT_OK, ConfigError

TOP_K = 5


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Measure the inference speed of bundles, interleaved, as a table of ratios."""

    bundles: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="BUNDLE [BUNDLE ...]")
    ]
    """Folders that `python -m export` wrote."""
    rows: int = 2000
    """Rows that each bundle scores in a round; the bundle's own test rows, repeated."""
    batch: int = 32
    """Rows in one call."""
    rounds: int = 5
    """Rounds over all bundles; the table shows medians."""
    threads: int = 1
    """Threads inside one call."""
    plot: Path | None = None
    """Picture to write, .png or .svg."""

    def __post_init__(self) -> None:
        for name in ("rows", "batch", "rounds", "threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if not self.bundles:
            raise ConfigError("expected at least one bundle: python -m serve bench model.bundle")


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Median speed of one bundle."""

    name: str
    dataset: str
    seconds: float
    rows_per_second: float
    ratio: float
    """How many times faster than the slowest model of the same data set."""


def bench_command(argv: Sequence[str]) -> int:
    """Parse the flags, measure, print the table, write the plot."""
    try:
        options = tyro.cli(BenchOptions, prog="python -m serve bench", args=list(argv))
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            print("example: python -m serve bench runs/demo/*/model.bundle")
        raise
    predictors = load(options)
    speeds = measure(predictors, options)
    Console().print(speed_table(speeds, options))
    for predictor in predictors:
        _race(predictor, options)
    if options.plot is not None:
        write_plot(speeds, options.plot)
        print(f"saved {options.plot}")
    return EXIT_OK


def load(options: BenchOptions) -> list[OnnxPredictor]:
    """The models of all bundles, energy networks beside those they taught."""
    bundles = [load_bundle(path) for path in options.bundles]
    graphs = [graph for bundle in bundles for graph in (bundle, bundle.energy()) if graph]
    return [
        OnnxPredictor(graph, threads=options.threads, max_batch_rows=options.batch)
        for graph in graphs
    ]


def measure(predictors: Sequence[OnnxPredictor], options: BenchOptions) -> list[Speed]:
    """Score the same number of rows with every model, round after round.

    Models of a data set stand together, the slowest first.
    """
    seconds: list[list[float]] = [[] for _ in predictors]
    for _ in track(range(options.rounds), "measuring", transient=True):
        for predictor, times in zip(predictors, seconds, strict=True):
            times.append(_seconds(predictor, options.rows, options.batch))
    medians = [statistics.median(times) for times in seconds]
    slowest: dict[str, float] = {}
    for predictor, median in zip(predictors, medians, strict=True):
        dataset = predictor.manifest.dataset
        slowest[dataset] = max(median, slowest.get(dataset, 0.0))
    speeds = [
        Speed(
            name=predictor.manifest.name,
            dataset=predictor.manifest.dataset,
            seconds=median,
            rows_per_second=options.rows / median,
            ratio=slowest[predictor.manifest.dataset] / median,
        )
        for predictor, median in zip(predictors, medians, strict=True)
    ]
    return sorted(speeds, key=lambda speed: (list(slowest).index(speed.dataset), speed.ratio))


def _race(predictor: OnnxPredictor, options: BenchOptions) -> None:
    """Compare a bundle that has a large label table with faiss, if that is installed."""
    try:
        results = race(predictor, options.rounds, options.threads)
    except ModuleNotFoundError:
        print('comparing the search of labels needs faiss: pip install "labelwright[ann]"')
        return
    if results:
        Console().print(race_table(predictor.manifest.name, results))


def _seconds(predictor: OnnxPredictor, rows: int, batch: int) -> float:
    k = min(TOP_K, predictor.manifest.label_count)
    whole, rest = divmod(rows, batch)
    batches = [predictor.probe_rows(batch)] * whole
    batches += [predictor.probe_rows(rest)] if rest else []
    started = time.perf_counter()
    for inputs in batches:
        predictor.run(inputs, k)
    return time.perf_counter() - started


def speed_table(speeds: Sequence[Speed], options: BenchOptions) -> Table:
    """The ratio says how many times faster a model is than the slowest of its data set."""
    table = Table(
        title=f"{options.rows} rows in batches of {options.batch}, {options.threads} thread(s)",
        title_justify="left",
    )
    table.add_column("model")
    table.add_column("data set")
    for column in ("seconds", "rows/s", "ratio"):
        table.add_column(column, justify="right")
    for speed in speeds:
        table.add_row(
            speed.name,
            speed.dataset,
            f"{speed.seconds:.4f}",
            f"{speed.rows_per_second:,.0f}",
            f"{speed.ratio:.2f}",
        )
    return table


def write_plot(speeds: Sequence[Speed], path: Path) -> None:
    """Bars of rows a second, on a logarithmic scale."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra that servers do not need
    except ModuleNotFoundError as error:
        raise ConfigError('--plot needs matplotlib: pip install "labelwright[report]"') from error
    figure = Figure(figsize=(7, 1 + 0.4 * len(speeds)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh([speed.name for speed in speeds], [s.rows_per_second for s in speeds])
    axes.bar_label(bars, [f"{s.rows_per_second:,.0f}" for s in speeds], padding=3)
    axes.set_xscale("log")
    axes.margins(x=0.25)
    axes.set_xlabel("rows per second")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write {path} ({error}): give another .png or .svg") from error
