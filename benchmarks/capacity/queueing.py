"""A fleet of single-core workers behind a balancer, as a queueing model that is simulated.

A worker takes what waits, at most `max_batch_rows`, and is busy for `per_batch + per_row * rows`
seconds; meanwhile others wait, up to a bound, beyond which they are refused (429). That is what
serve/batching.py does with requests of one row. Requests come as a Poisson process.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Balancing = Literal["random", "round robin", "two choices"]
"""`two choices`: of two workers drawn at random, the one with fewer requests in it."""
WARM_UP = 0.2
"""Share of the requests that come before the fleet is in its usual state; they are not counted."""


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One core; seconds are of its own time."""

    per_batch: float
    per_row: float
    max_batch_rows: int = 128
    max_queue_rows: int = 4096
    max_wait_seconds: float = 1.0

    @property
    def rows_per_second(self) -> float:
        """With full batches, which is as fast as it gets."""
        return self.max_batch_rows / (self.per_batch + self.per_row * self.max_batch_rows)

    @property
    def most_waiting(self) -> int:
        """Rows that may wait: as many as fit, and as are done in time; one always may."""
        in_time = self.max_wait_seconds * self.rows_per_second
        return min(self.max_queue_rows, max(1, int(in_time)))


def workers_for(load: float, worker: Worker, utilisation: float) -> int:
    """Workers that take `load` rows a second, each at this share of its `rows_per_second`."""
    return math.ceil(load / (utilisation * worker.rows_per_second))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the requests of a simulation met."""

    latencies: NDArray[np.float64]
    """Seconds inside the fleet, of those that were answered."""
    refused: float
    """Share of all requests."""
    busy: float
    """Share of the time that a worker computes, on average: what an autoscaler sees as CPU."""
    rows_per_batch: float

    def quantile(self, share: float) -> float:
        """Seconds within which this share of the answers came."""
        return float(np.quantile(self.latencies, share))


@dataclass
class Lane:
    """A worker at work: its queue, and until when it is busy."""

    worker: Worker
    waiting: deque[tuple[int, float]] = field(default_factory=deque)
    """Number and time of arrival."""
    running: int = 0
    busy_until: float = 0.0
    busy_seconds: float = 0.0
    batches: int = 0

    def advance(self, now: float, answered: NDArray[np.float64]) -> None:
        """Run every batch that begins by now; note when its requests are answered."""
        while self.waiting and (begin := max(self.busy_until, self.waiting[0][1])) <= now:
            rows = min(self.worker.max_batch_rows, self._come_by(begin))
            seconds = self.worker.per_batch + self.worker.per_row * rows
            self.busy_until, self.running = begin + seconds, rows
            self.busy_seconds += seconds
            self.batches += 1
            for _ in range(rows):
                number, arrived = self.waiting.popleft()
                answered[number] = self.busy_until - arrived

    def _come_by(self, begin: float) -> int:
        count = 0
        for _, arrived in self.waiting:
            if arrived > begin or count == self.worker.max_batch_rows:
                break
            count += 1
        return count

    def in_it(self, now: float) -> int:
        """Requests that wait or are computed."""
        return len(self.waiting) + (self.running if self.busy_until > now else 0)


def simulate(
    worker: Worker,
    load: float,
    *,
    workers: int = 1,
    requests: int = 200_000,
    balancing: Balancing = "random",
    seed: int = 0,
) -> Outcome:
    """Send requests of one row, `load` of them a second, to a fleet."""
    rng = np.random.default_rng(seed)
    arrivals = rng.exponential(1 / load, requests).cumsum()
    lanes = [Lane(worker) for _ in range(workers)]
    answered = np.full(requests, np.nan)
    choose = _chooser(lanes, balancing, requests, rng, answered)
    for number, now in enumerate(arrivals.tolist()):
        lane = choose(number, now)
        lane.advance(now, answered)
        if len(lane.waiting) < worker.most_waiting:
            lane.waiting.append((number, now))
    for lane in lanes:
        lane.advance(math.inf, answered)
    return _outcome(lanes, answered, float(arrivals[-1]))


Chooser = Callable[[int, float], Lane]


def _chooser(
    lanes: list[Lane],
    balancing: Balancing,
    requests: int,
    rng: np.random.Generator,
    answered: NDArray[np.float64],
) -> Chooser:
    if balancing == "round robin":
        return lambda number, now: lanes[number % len(lanes)]
    drawn = rng.integers(0, len(lanes), (requests, 2)).tolist()
    if balancing == "random":
        return lambda number, now: lanes[drawn[number][0]]

    def fewer(number: int, now: float) -> Lane:
        first, second = (lanes[place] for place in drawn[number])
        for lane in (first, second):
            lane.advance(now, answered)
        return first if first.in_it(now) <= second.in_it(now) else second

    return fewer


def _outcome(lanes: list[Lane], answered: NDArray[np.float64], seconds: float) -> Outcome:
    counted = answered[int(WARM_UP * len(answered)) :]
    done = counted[~np.isnan(counted)]
    ended = max(seconds, *(lane.busy_until for lane in lanes))
    return Outcome(
        latencies=done,
        refused=1 - len(done) / len(counted),
        busy=sum(lane.busy_seconds for lane in lanes) / (ended * len(lanes)),
        rows_per_batch=int((~np.isnan(answered)).sum()) / sum(lane.batches for lane in lanes),
    )
