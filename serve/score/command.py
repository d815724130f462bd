"""`python -m serve score BUNDLE --input FILE... --output DIR`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TimeRemainingColumn,
)
from rich.text import Text

from export.bundle import read_manifest
from serve.score.local import Tell, score_here
from serve.score.plan import Chunk, Job, all_chunks, claimed, pending
from serve.settings import Settings
from train.errors import EXIT_INTERRUPTED, EXIT_OK, ConfigError, needs_extra

EXAMPLE = "python -m serve score model.bundle --input rows.parquet --output scores"


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """Score files of rows. The same command goes on with a job that was cut off."""

    bundle: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="BUNDLE")]
    """Folder that `python -m export` wrote."""
    input: tuple[Path, ...]
    """Files of rows: .parquet, .csv, .tsv, .jsonl, .npz, .npy or .txt."""
    output: Path
    """Folder to write to: plan.json, and a file in chunks/ for each chunk."""
    format: Literal["parquet", "jsonl"] = "parquet"
    """Of the files that are written."""
    top_k: int | None = None
    """Labels of a row, at most; 5 unless told, or all that reach the threshold."""
    threshold: float | Literal["tuned", "per-label"] | None = None
    """Score that a label must reach: a number, or the bundle's own."""
    text_column: str = "text"
    """Column or field that holds the texts, of a bundle that takes texts."""
    chunk_rows: int = 10_000
    """Rows that are read, scored and written at a time."""
    workers: int = 0
    """Processes; 0: one for each core, or with Ray for each processor of the cluster."""
    engine: Literal["local", "ray"] = "local"
    """`local`: on this machine; `ray`: on a Ray cluster."""
    address: str | None = None
    """Ray only: address of the cluster; without one it is started on this machine."""

    def __post_init__(self) -> None:
        if not self.input:
            raise ConfigError(f"expected at least one file as --input: {EXAMPLE}")
        if self.chunk_rows < 1:
            raise ConfigError(f"--chunk-rows must be at least 1, got {self.chunk_rows}")
        if self.workers < 0:
            raise ConfigError(
                f"--workers must be at least 1, or 0 for all cores, got {self.workers}"
            )
        if self.engine == "local" and self.address:
            raise ConfigError("--address is for --engine ray: add it")

    def job(self) -> Job:
        """The same for workers, wherever they are."""
        return Job(
            bundle=self.bundle.absolute(),
            version=read_manifest(self.bundle).version,
            inputs=tuple(path.resolve() for path in self.input),
            folder=self.output.absolute(),
            format=self.format,
            chunk_rows=self.chunk_rows,
            top_k=self.top_k,
            threshold=self.threshold,
            text_column=self.text_column,
        )


def score_command(argv: Sequence[str]) -> int:
    """Score what is not scored yet."""
    console = Console()
    try:
        options = tyro.cli(ScoreOptions, prog="python -m serve score", args=list(argv))
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            console.print(f"example: {EXAMPLE}", highlight=False, soft_wrap=True)
        raise
    engine, job = _engine(options), options.job()
    chunks = all_chunks(job)
    with claimed(job):
        left = pending(job, chunks)
        started = time.perf_counter()
        with _progress(chunks, left) as tell:
            is_done = engine(job, left, tell)
        seconds = time.perf_counter() - started
        still_left = pending(job, chunks)
    rows = _rows(left) - _rows(still_left)
    line = f"scored {rows:,} rows in {seconds:.1f} s, {rows / seconds:,.0f} rows/s"
    line += f"; {len(chunks) - len(still_left)} of {len(chunks)} chunks are in {options.output}"
    line += "" if is_done else "; the same command goes on"
    console.print(line, highlight=False, markup=False, soft_wrap=True)
    return EXIT_OK if is_done else EXIT_INTERRUPTED


Engine = Callable[[Job, Sequence[Chunk], Tell], bool]


def _engine(options: ScoreOptions) -> Engine:
    if options.engine == "local":
        workers = Settings(bundles=(options.bundle,), workers=options.workers).worker_count
        return lambda job, chunks, tell: score_here(job, chunks, workers, tell)
    with needs_extra("ray", "--engine ray"):
        from serve.score.on_ray import score_on_ray  # noqa: PLC0415 - may be missing

    return lambda job, chunks, tell: score_on_ray(
        job, chunks, options.workers, options.address, tell
    )


def _rows(chunks: Sequence[Chunk]) -> int:
    return sum(chunk.span.rows for chunk in chunks)


class _Speed(ProgressColumn):
    """Rows a second, of this process alone and not of those before it."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} rows/s" if speed else "")


@contextmanager
def _progress(chunks: Sequence[Chunk], left: Sequence[Chunk]) -> Iterator[Tell]:
    """A bar on stderr, where somebody watches."""
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), _Speed(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, speed_estimate_period=600,
        disable=not console.is_terminal,
    ) as progress:  # fmt: skip
        total = _rows(chunks)
        task = progress.add_task("", total=total, completed=total - _rows(left))
        yield lambda chunk: progress.advance(task, chunk.span.rows)
