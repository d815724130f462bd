"""Inputs of any length, cut into requests: a few under way, answers in the order of the rows.

Memory is bounded: `concurrency` requests are under way, and one answer is being read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from labelwright_client._errors import ClientError, InvalidArgument
from labelwright_client._progress import Progress, reporting
from labelwright_client._rows import EXPECTED, Rows

T = TypeVar("T")
ManyRows = Rows | Iterable[Sequence[float]] | Iterable[Mapping[int, float]] | Iterable[str]

MOST_ARRAY_BYTES = 8 * 2**20  # half of what a server takes in one body, unless told otherwise


@dataclass(frozen=True)
class Chunk:
    """Some rows, and the number of the first of them in the whole."""

    start: int
    rows: Any


@dataclass(frozen=True)
class Pace:
    """How the rows are cut, and how many requests are under way."""

    chunk_rows: int
    concurrency: int
    progress: Progress

    def __post_init__(self) -> None:
        for name in ("chunk_rows", "concurrency"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidArgument(f"{name} is {value!r}: expected a whole number from 1 on")


@dataclass(frozen=True)
class Cut:
    """All rows as chunks, and how many rows there are; None if only the end will tell."""

    chunks: Iterator[Chunk]
    total: int | None


def cut(rows: Any, chunk_rows: int) -> Cut:  # noqa: ANN401 - ManyRows, or a mistake
    """Cut what holds rows, or yields them; arrays are cut finer where rows are very wide.

    Raises:
        InvalidArgument: One single row, or nothing that holds rows.
    """
    shape = getattr(rows, "shape", None)
    is_one = isinstance(rows, str | bytes | Mapping) or shape == ()
    if is_one or not isinstance(rows, Iterable):
        raise InvalidArgument(
            f"{EXPECTED}, or something that yields them, got {type(rows).__name__}"
        )
    if hasattr(rows, "tocsr"):
        matrix = rows.tocsr()
        return _slices(matrix, matrix.shape[0], chunk_rows)
    if shape is not None:
        return _slices(rows, shape[0], min(chunk_rows, _most_rows(shape)))
    if isinstance(rows, Sequence):
        return _slices(rows, len(rows), chunk_rows)
    return Cut(_batches(rows, chunk_rows), None)


def answers(cut: Cut, pace: Pace, ask: Callable[[Any], Sequence[T]]) -> Iterator[T]:
    """Ask for chunk after chunk in threads; what the caller's context holds is there, too."""
    window: deque[Future[Sequence[T]]] = deque()
    done = 0

    def work(chunk: Chunk) -> Sequence[T]:
        with _noted(chunk):
            return ask(chunk.rows)

    def fill() -> None:
        for chunk in islice(cut.chunks, pace.concurrency - len(window)):
            window.append(pool.submit(copy_context().run, work, chunk))

    with reporting(pace.progress) as report, ThreadPoolExecutor(pace.concurrency) as pool:
        try:
            fill()
            while window:
                part = window.popleft().result()
                fill()
                done += len(part)
                report(done, cut.total)
                yield from part
        finally:
            for future in window:
                future.cancel()


async def async_answers(
    cut: Cut, pace: Pace, ask: Callable[[Any], Awaitable[Sequence[T]]]
) -> AsyncIterator[T]:
    """The same with tasks in place of threads."""
    window: deque[asyncio.Task[Sequence[T]]] = deque()
    done = 0

    async def work(chunk: Chunk) -> Sequence[T]:
        with _noted(chunk):
            return await ask(chunk.rows)

    def fill() -> None:
        for chunk in islice(cut.chunks, pace.concurrency - len(window)):
            window.append(asyncio.create_task(work(chunk)))

    with reporting(pace.progress) as report:
        try:
            fill()
            while window:
                part = await window.popleft()
                fill()
                done += len(part)
                report(done, cut.total)
                for answer in part:
                    yield answer
        finally:
            for task in window:
                task.cancel()
            await asyncio.gather(*window, return_exceptions=True)


def _most_rows(shape: tuple[int, ...]) -> int:
    width = shape[1] if len(shape) == 2 else 1
    return max(1, MOST_ARRAY_BYTES // (4 * max(1, width)))


def _slices(rows: Any, total: int, size: int) -> Cut:  # noqa: ANN401 - as above
    by_place = getattr(rows, "iloc", rows)  # of pandas, where rows[2:4] may mean names
    starts = range(0, total, size)
    return Cut((Chunk(start, by_place[start : start + size]) for start in starts), total)


def _batches(rows: Iterable[Any], size: int) -> Iterator[Chunk]:
    iterator, start = iter(rows), 0
    while batch := list(islice(iterator, size)):
        yield Chunk(start, batch)
        start += len(batch)


@contextmanager
def _noted(chunk: Chunk) -> Iterator[None]:
    """Say where in the whole a request failed, as its message counts from its own first row."""
    try:
        yield
    except ClientError as error:
        error.add_note(f"in the request that begins with row {chunk.start}, which it calls row 0")
        raise
