"""What one worker costs, and what a Poisson load meets there: measured through the real server."""

from __future__ import annotations

import re
import selectors
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from benchmarks.capacity.queueing import Worker
from benchmarks.serving import model
from benchmarks.serving.connections import Connection, load, posted
from benchmarks.serving.running import Running, free_port, started
from benchmarks.serving.servers import CACHE, Setting, our_json, ours

CONNECTIONS = (1, 2, 4, 8, 16, 32, 64)
OPEN_CONNECTIONS = 256
"""Of the Poisson load: more than are ever in use at the loads that are measured."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """CPU seconds of the server for each request, at a mean size of its batches."""

    rows_per_batch: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Point:
    """What requests met at a load."""

    load: float
    """Requests a second that were sent."""
    p50: float
    p99: float
    """Seconds, from when a request was due to when its answer was read."""


@contextmanager
def one_worker() -> Iterator[tuple[Running, list[bytes]]]:
    """A server of one worker, and the requests to send: a row of 500 numbers as JSON."""
    bundle, folder = model.write(CACHE / "model"), CACHE / "capacity"
    folder.mkdir(parents=True, exist_ok=True)
    setting = Setting(folder, Path(sys.executable), bundle, bundle, free_port(), 1)
    requests = [posted(our_json(model.rows(1, seed=n)).content) for n in range(model.BODIES)]
    with started(ours("protocol"), setting) as running:
        load(running.port, requests, 16, lambda seen: seen.seconds >= 1)
        yield running, requests


def costs(running: Running, requests: Sequence[bytes], seconds: float) -> list[Cost]:
    """Keep a few connections busy, then more: the more, the larger the batches."""
    found = []
    for connections in CONNECTIONS:
        batches, rows, cpu = *_batches(running), running.cpu_seconds()
        load(running.port, requests, connections, lambda seen: seen.seconds >= seconds)
        now_batches, now_rows = _batches(running)
        asked = now_rows - rows
        found.append(
            Cost(
                rows_per_batch=asked / (now_batches - batches),
                seconds=(running.cpu_seconds() - cpu) / asked,
            )
        )
    return found


def _batches(running: Running) -> tuple[float, float]:
    """Batches and rows so far, by the server's own metrics."""
    text = httpx.get(f"{running.url}/metrics").text
    values = [
        sum(map(float, re.findall(rf"^labelwright_batch_rows_{end}(?:{{.*}})? (\S+)$", text, re.M)))
        for end in ("count", "sum")
    ]
    return values[0], values[1]


def fitted(measured: Sequence[Cost]) -> Worker:
    """Least squares of seconds = per_batch / rows_per_batch + per_row."""
    x = np.array([[1 / cost.rows_per_batch, 1.0] for cost in measured])
    y = np.array([cost.seconds for cost in measured])
    per_batch, per_row = np.linalg.lstsq(x, y, rcond=None)[0]
    return Worker(per_batch=max(float(per_batch), 0.0), per_row=float(per_row))


def poisson(
    running: Running, requests: Sequence[bytes], rate: float, seconds: float, seed: int = 0
) -> Point:
    """Send requests when they are due, whether or not others have been answered."""
    rng = np.random.default_rng(seed)
    due = deque(rng.exponential(1 / rate, int(rate * seconds)).cumsum().tolist())
    count, latencies = len(due), []
    with selectors.DefaultSelector() as selector:
        idle = [Connection(running.port, n % len(requests)) for n in range(OPEN_CONNECTIONS)]
        for connection in idle:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        begun = time.perf_counter()
        while len(latencies) < count:
            now = time.perf_counter() - begun
            while due and idle and due[0] <= now:
                connection = idle.pop()
                connection.send(requests)
                connection.begun = begun + due.popleft()  # not when it could be sent
            # epoll counts in whole milliseconds and rounds up, so the last one is not slept.
            wait = max(due[0] - now - 1e-3, 0) if due and idle else 1.0
            for key, _ in selector.select(wait if wait > 1e-3 else 0):
                if (answer := key.data.answer()) is not None:
                    if answer[0] != 200:
                        raise SystemExit(f"the server answered {answer[0]}: {answer[1][:200]!r}")
                    latencies.append(time.perf_counter() - key.data.begun)
                    idle.append(key.data)
        for key in list(selector.get_map().values()):
            key.data.socket.close()
    p50, p99 = np.quantile(latencies, [0.5, 0.99]).tolist()
    return Point(load=rate, p50=p50, p99=p99)
