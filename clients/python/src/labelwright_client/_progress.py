"""How far a long job is: a bar on stderr, or a function of the caller's."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

Report = Callable[[int, int | None], None]
Progress = bool | Report

WIDTH = 30
SECONDS_BETWEEN = 0.1


class Bar:
    """Draws `done` of `total` rows over itself; where nobody watches, one line at the end.

    A total of None is one that is not known: the rows come out of a generator.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._started = clock()
        self._drawn = -1.0
        self._line = ""

    def __call__(self, done: int, total: int | None) -> None:
        """Take note; draw it if the last drawing is some time ago."""
        seconds = self._clock() - self._started
        self._line = _line(done, total, seconds)
        if self._stream.isatty() and seconds - self._drawn >= SECONDS_BETWEEN:
            self._drawn = seconds
            self._stream.write(f"\r{self._line}\x1b[K")
            self._stream.flush()

    def finish(self) -> None:
        """Leave the last state on a line of its own."""
        if self._line:
            start, end = ("\r", "\x1b[K\n") if self._stream.isatty() else ("", "\n")
            self._stream.write(f"{start}{self._line}{end}")
            self._stream.flush()


@contextmanager
def reporting(progress: Progress) -> Iterator[Report]:
    """Where to report to: nowhere, to a bar on stderr, or to the caller's function."""
    if callable(progress):
        yield progress
    elif progress:
        bar = Bar(sys.stderr)
        try:
            yield bar
        finally:
            bar.finish()
    else:
        yield lambda done, total: None


def _line(done: int, total: int | None, seconds: float) -> str:
    speed = f"{done / seconds:.0f} rows/s" if seconds > 0 else ""
    if total is None:
        return f"{done} rows  {speed}".rstrip()
    filled = WIDTH * done // max(total, 1)
    bar = "#" * filled + "-" * (WIDTH - filled)
    return f"{done}/{total} rows [{bar}] {100 * done // max(total, 1):3d} %  {speed}".rstrip()
