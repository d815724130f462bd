"""Numbers that several worker processes count and any one of them can add up.

Each worker writes to a slab of its own, so that counting needs no lock: a few additions in shared
memory. A slab says itself what it holds: lines of JSON that name a series and how many numbers it
has, in the order of the numbers. A worker that takes the place of a dead one goes on where that
stopped, so counters never fall.
"""

from __future__ import annotations

import json
import mmap
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence

Key = tuple[str, ...]
"""Name of a metric and the values of its labels."""

LENGTH = struct.Struct("<Q")
NAMES_BYTES = 2**20
NUMBERS = 2**18
# Memory that nobody has written to costs nothing.
SLAB_BYTES = NAMES_BYTES + 8 * NUMBERS


class Histogram:
    """How many values were at most each bound, and their sum; `cells` is (sum, counts...)."""

    __slots__ = ("_bounds", "_cells")

    def __init__(self, cells: memoryview[float], bounds: Sequence[float]) -> None:
        self._cells = cells
        self._bounds = bounds

    def observe(self, value: float) -> None:
        """Count one value."""
        cells = self._cells
        cells[0] += value
        cells[bisect_left(self._bounds, value) + 1] += 1.0


class Slab:
    """The numbers of one worker."""

    def __init__(self, memory: memoryview) -> None:
        self._names = memory[:NAMES_BYTES]
        self._numbers = memory[NAMES_BYTES:SLAB_BYTES].cast("d")
        self._places: dict[Key, tuple[int, int]] = {}
        self._read_bytes = self._next = 0

    def series(self, key: Key, size: int = 1) -> memoryview[float]:
        """The numbers of a series, which is begun with zeros where it does not exist yet."""
        self._refresh()
        if key not in self._places:
            self._append(key, size)
        start, size = self._places[key]
        return self._numbers[start : start + size]

    def items(self) -> Iterator[tuple[Key, list[float]]]:
        """Every series with its numbers as they are now."""
        self._refresh()
        for key, (start, size) in self._places.items():
            yield key, list(map(float, self._numbers[start : start + size]))

    def _append(self, key: Key, size: int) -> None:
        line = json.dumps([*key, size]).encode() + b"\n"
        start = LENGTH.size + self._read_bytes
        if start + len(line) > NAMES_BYTES or self._next + size > NUMBERS:
            raise MemoryError("more models and metrics than a worker has room to count")
        self._names[start : start + len(line)] = line
        # Last, so that whoever reads at this moment sees whole lines only.
        LENGTH.pack_into(self._names, 0, self._read_bytes + len(line))
        self._refresh()

    def _refresh(self) -> None:
        """Take in the series that were begun since, by this process or by the slab's owner."""
        (length,) = LENGTH.unpack_from(self._names, 0)
        if length == self._read_bytes:
            return
        start = LENGTH.size
        text = bytes(self._names[start + self._read_bytes : start + length])
        for line in text.splitlines():
            *key, size = json.loads(line)
            self._places[tuple(key)] = (self._next, size)
            self._next += size
        self._read_bytes = length


class Counters:
    """The slabs of all workers, in memory that processes forked from this one share."""

    def __init__(self, workers: int = 1) -> None:
        self._memory = memoryview(mmap.mmap(-1, workers * SLAB_BYTES))
        self.workers = workers
        self.slabs = [self._slab(worker) for worker in range(workers)]

    def _slab(self, worker: int) -> Slab:
        return Slab(self._memory[worker * SLAB_BYTES : (worker + 1) * SLAB_BYTES])

    def totals(self) -> dict[Key, list[float]]:
        """Every series of any worker, added up over all of them."""
        totals: dict[Key, list[float]] = {}
        for slab in self.slabs:
            for key, numbers in slab.items():
                have = totals.get(key)
                totals[key] = (
                    [a + b for a, b in zip(have, numbers, strict=True)] if have else numbers
                )
        return totals
