"""`python -m benchmarks.serving.overload`: five times the load that a server can take, and after.

python -m benchmarks.serving.overload [--seconds 4] [--max-wait-ms 3]

Prints as multiples of the usual load: p99 of what was accepted, predictions a second, memory; the
statuses that came, and the p99 in the second after the overload has ended. Unless told, requests
may wait four fifths of the usual p99 without a limit, which is measured first.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.serving import model
from benchmarks.serving.connections import Seen, load, posted
from benchmarks.serving.running import Running, free_port, started
from benchmarks.serving.servers import CACHE, Setting, our_json, ours

USUAL_CONNECTIONS, OVERLOAD = 64, 5
WAITING_SHARE = 0.8
"""Of the usual p99: the lower, the shorter all waits, and the more are refused in a busy moment."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How long, and what the server may let wait."""

    seconds: float = 4.0
    """Of the overload, and of the usual load before it."""
    max_wait_ms: float | None = None
    """As of `python -m serve`; unless told a share of the usual p99."""
    workers: int = 2
    folder: Path = CACHE


def main(options: Options) -> None:
    """Load a server as usual, five times as much, and as usual again."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    bundle = model.write(options.folder / "model")
    folder = options.folder / "overload"
    folder.mkdir(parents=True, exist_ok=True)
    setting = Setting(folder, Path(sys.executable), bundle, bundle, free_port(), options.workers)
    max_wait_ms = options.max_wait_ms
    if max_wait_ms is None:
        with started(ours("protocol"), setting) as running:
            max_wait_ms = WAITING_SHARE * usual_load(running, options.seconds).p99
    print(f"--max-wait-ms {max_wait_ms:.1f}")
    with started(ours("protocol", "--max-wait-ms", f"{max_wait_ms:.1f}"), setting) as running:
        for line in report(running, options.seconds):
            print(line)


def burst(running: Running, connections: int, seconds: float) -> Seen:
    """So many connections that ask again as soon as they are answered, for some time."""
    requests = [posted(our_json(model.rows(1, seed=n)).content) for n in range(model.BODIES)]
    return load(running.port, requests, connections, lambda seen: seen.seconds >= seconds)


def usual_load(running: Running, seconds: float) -> Seen:
    """What a server that has warmed up can take."""
    burst(running, USUAL_CONNECTIONS, 1.0)
    return burst(running, USUAL_CONNECTIONS, seconds)


def report(running: Running, seconds: float) -> list[str]:
    """What the three loads showed, one line each."""
    usual, memory = usual_load(running, seconds), [running.memory_mb()]
    halves = []
    for _ in range(2):
        halves.append(burst(running, OVERLOAD * USUAL_CONNECTIONS, seconds / 2))
        memory.append(running.memory_mb())
    again = burst(running, USUAL_CONNECTIONS, 1.0)
    p99 = max(over.p99 for over in halves)
    rate = sum(over.statuses[200] for over in halves) / sum(over.seconds for over in halves)
    statuses = sum((over.statuses for over in halves), Counter[int]())
    counted = ", ".join(f"{count} of {status}" for status, count in sorted(statuses.items()))
    return [
        f"usual load: {USUAL_CONNECTIONS} connections, p99 {usual.p99:.1f} ms, "
        f"{usual.rate:,.0f} predictions a second, statuses {dict(usual.statuses)}",
        f"{OVERLOAD} times as many: p99 of predictions {p99 / usual.p99:.2f} times, "
        f"predictions a second {rate / usual.rate:.2f} times, memory {memory[1] / memory[0]:.2f} "
        f"times, then {memory[2] / memory[1]:.2f} times that; {counted}",
        f"in the second after: p99 {again.p99 / usual.p99:.2f} times, "
        f"predictions a second {again.rate / usual.rate:.2f} times",
    ]


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
