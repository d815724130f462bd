"""Ctrl-C and SIGTERM as a question that training answers when its step is done."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class _Flag:
    """Whether somebody asked to stop."""

    raised: bool = False

    def is_set(self) -> bool:
        return self.raised


@contextmanager
def interruptions(*, once: bool = True) -> Iterator[_Flag]:
    """Turn SIGINT and SIGTERM into a flag, so that the current step can finish.

    once: only the first; a second one has its usual effect.
    """
    stop = _Flag()
    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        stop.raised = True
        if once:  # a second one means it: give it back its usual effect
            signal.signal(number, before[number])

    for number in before:
        signal.signal(number, ask_to_stop)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
