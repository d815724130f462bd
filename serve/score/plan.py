"""The folder of a job: what is to be scored, and which chunks are finished.

DIR/
  plan.json    bundle, inputs and cutting; a job with another plan is refused
  chunks/      NUMBER-INPUT-CHUNK.parquet or .jsonl; one that is there is whole
  .lock        held by the process that works on the job
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from export.bundle import Bundle, load_bundle
from serve import api
from serve.errors import ApiError
from serve.inputs import TextRows
from serve.score.opening import InputFile
from serve.score.sources import Span, Wanted, wire_of
from train.errors import ConfigError, DataError

PLAN, CHUNKS, LOCK = "plan.json", "chunks", ".lock"


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that a worker must know. Paths are absolute: workers may have another folder."""

    bundle: Path
    version: str
    """Of the bundle, by its contents."""
    inputs: tuple[Path, ...]
    folder: Path
    format: str
    chunk_rows: int
    top_k: int | None
    threshold: float | str | None
    text_column: str

    def output(self, chunk: Chunk) -> Path:
        """Where the labels of a chunk are."""
        name = f"{chunk.file:03d}-{self.inputs[chunk.file].name}-{chunk.number:06d}.{self.format}"
        return self.folder / CHUNKS / name

    def limits(self, bundle: Bundle, wire: api.ModelWire) -> api.Limits:
        """Which labels of a row are written.

        Raises:
            ConfigError: The bundle cannot be asked for them.
        """
        if wire.rules.image is not None:
            raise ConfigError(f"{bundle.path} answers with masks, not labels: ask its server")
        if wire.rules.kind == "words":
            raise ConfigError(f"{bundle.path} answers with spans, not labels: ask its server")
        asked = {"top_k": self.top_k, "threshold": self.threshold}
        try:
            return api.call_of(asked, TextRows([]), wire).limits
        except ApiError as error:
            words = str(error).replace('"top_k"', "--top-k").replace('"threshold"', "--threshold")
            raise ConfigError(words) from error


class Chunk(NamedTuple):
    """Rows of one input, scored in one go."""

    file: int
    """Place of the input among the job's."""
    number: int
    """From 0 in each input."""
    span: Span


def all_chunks(job: Job) -> list[Chunk]:
    """Every chunk of every input, in order.

    Raises:
        DataError: An input cannot be read, or lacks a column.
    """
    bundle = load_bundle(job.bundle)
    wire = wire_of(bundle, job.chunk_rows)
    job.limits(bundle, wire)
    wanted = Wanted.by(bundle, wire, job.text_column)
    return [
        Chunk(file, number, span)
        for file, path in enumerate(job.inputs)
        for number, span in enumerate(InputFile(path, wanted).spans(job.chunk_rows))
    ]


@contextmanager
def claimed(job: Job) -> Iterator[None]:
    """Hold the folder for this job alone, and leave nothing half-written in it.

    Raises:
        ConfigError: The folder has another job, other files, or a process that works on it.
    """
    plan = _plan(job)
    (job.folder / CHUNKS).mkdir(parents=True, exist_ok=True)
    with (job.folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"another process is scoring into {job.folder}: wait for it, or give another "
                "--output"
            ) from error
        _agree(job.folder, plan)
        _clean(job.folder)
        try:
            yield
        finally:
            _clean(job.folder)


def _clean(folder: Path) -> None:
    """Remove what dead workers left half-written."""
    for leftover in (folder / CHUNKS).glob(".*"):
        leftover.unlink(missing_ok=True)


def pending(job: Job, chunks: Sequence[Chunk]) -> list[Chunk]:
    """Those that are not finished."""
    there = set(os.listdir(job.folder / CHUNKS))
    return [chunk for chunk in chunks if job.output(chunk).name not in there]


def _plan(job: Job) -> dict[str, Any]:
    """What makes it this job and no other."""
    return {
        "bundle": job.version,
        "inputs": [_identity(path) for path in job.inputs],
        "chunk_rows": job.chunk_rows,
        "top_k": job.top_k,
        "threshold": job.threshold,
        "text_column": job.text_column,
        "format": job.format,
    }


def _identity(path: Path) -> dict[str, Any]:
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    return {"path": str(path), "bytes": status.st_size, "modified_ns": status.st_mtime_ns}


def _agree(folder: Path, plan: dict[str, Any]) -> None:
    """Write the plan, or compare it with the one that is there."""
    path = folder / PLAN
    if not path.exists():
        others = [name for name in os.listdir(folder) if name not in (CHUNKS, LOCK)]
        others = [name for name in others if not name.startswith(f".{PLAN}")]
        if others or any((folder / CHUNKS).iterdir()):
            raise ConfigError(
                f"{folder} is not empty and has no {PLAN}: give another folder as --output"
            )
        draft = path.with_name(f".{PLAN}")
        draft.write_text(json.dumps(plan, indent=2) + "\n", "utf-8")
        draft.replace(path)
        return
    try:
        known = json.loads(path.read_text("utf-8"))
    except ValueError:
        known = None
    if known != plan:
        known = known if isinstance(known, dict) else {}
        other = ", ".join(name for name in plan if known.get(name) != plan[name])
        raise ConfigError(
            f"{folder} holds another job, with other {other or 'fields'} in {PLAN}: "
            "give another folder as --output"
        )
