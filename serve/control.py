"""What the workers agree on: which models are unloaded, and how often each was loaded anew.

Memory that all workers share. A change has a number; each worker writes down the number of the last
change that it has carried out, so that whoever made it can wait for all.
"""

from __future__ import annotations

import json
import mmap
import multiprocessing
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

STATE_BYTES = 2**20


@dataclass
class Wishes:
    """Changes to what the command line and the repository say."""

    unloaded: list[str] = field(default_factory=list)
    loads: dict[str, int] = field(default_factory=dict)
    """How often a model was asked to be loaded, by name."""


class Control:
    """The wishes of all workers, in memory that processes forked from this one share."""

    def __init__(self, workers: int = 1) -> None:
        self._memory = mmap.mmap(-1, STATE_BYTES)
        self._numbers = memoryview(mmap.mmap(-1, 8 * (workers + 2))).cast("Q")
        self._lock = multiprocessing.get_context("fork").Lock()

    @property
    def change(self) -> int:
        """Number of the last change."""
        return self._numbers[0]

    def read(self) -> tuple[int, Wishes]:
        """The last change and what is wished since."""
        with self._lock:
            length = self._numbers[1]
            return self.change, Wishes(**json.loads(self._memory[:length] or b"{}"))

    def update(self, edit: Callable[[Wishes], None]) -> int:
        """Change what is wished; the number of the change."""
        with self._lock:
            wishes = Wishes(**json.loads(self._memory[: self._numbers[1]] or b"{}"))
            edit(wishes)
            text = json.dumps(asdict(wishes)).encode()
            if len(text) > STATE_BYTES:
                raise MemoryError("more models were loaded and unloaded than can be kept in mind")
            self._memory[: len(text)] = text
            self._numbers[1] = len(text)
            self._numbers[0] += 1
            return self._numbers[0]

    def carried_out(self, worker: int, change: int) -> None:
        """Write down that a worker has carried out all changes up to this one."""
        self._numbers[2 + worker] = change

    def is_carried_out(self, change: int) -> bool:
        """Whether all workers have carried it out."""
        return all(done >= change for done in self._numbers[2:])
