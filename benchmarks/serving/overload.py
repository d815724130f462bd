"""`python -m benchmarks.serving.overload`: five times the load that a server can take, and after.

python -m benchmarks.serving.overload [--seconds 4] [--max-wait-ms 6]

Prints as multiples of the usual load: p99 of what was accepted, predictions a second, memory; the
statuses that came, and the p99 in the second after the overload has ended.
"""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.serving import model
from benchmarks.serving.connections import Seen, load, posted
from benchmarks.serving.running import Running, free_port, started
from benchmarks.serving.servers import CACHE, Setting, our_json, ours

USUAL_CONNECTIONS, OVERLOAD = 64, 5


@dataclass(frozen=True, kw_only=True)
class Options:
    """How long, and what the server may let wait."""

    seconds: float = 4.0
    """Of the overload, and of the usual load before it."""
    max_wait_ms: float = 6.0
    """As of `python -m serve`."""
    workers: int = 2
    folder: Path = CACHE


def main(options: Options) -> None:
    """Load a server as usual, five times as much, and as usual again."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    bundle = model.write(options.folder / "model")
    folder = options.folder / "overload"
    folder.mkdir(parents=True, exist_ok=True)
    setting = Setting(folder, Path(sys.executable), bundle, bundle, free_port(), options.workers)
    server = ours("protocol", "--max-wait-ms", str(options.max_wait_ms))
    with started(server, setting) as running:
        for line in report(running, options.seconds):
            print(line)


def report(running: Running, seconds: float) -> list[str]:
    """What the three loads showed, one line each."""
    requests = [posted(our_json(model.rows(1, seed=n)).content) for n in range(model.BODIES)]

    def burst(connections: int, length: float) -> Seen:
        return load(running.port, requests, connections, lambda seen: seen.seconds >= length)

    burst(USUAL_CONNECTIONS, 1.0)
    usual, before = burst(USUAL_CONNECTIONS, seconds), running.memory_mb()
    over, after = burst(OVERLOAD * USUAL_CONNECTIONS, seconds), running.memory_mb()
    again = burst(USUAL_CONNECTIONS, 1.0)
    statuses = ", ".join(f"{count} of {status}" for status, count in sorted(over.statuses.items()))
    return [
        f"usual load: {USUAL_CONNECTIONS} connections, p99 {usual.p99:.1f} ms, "
        f"{usual.rate:,.0f} predictions a second, statuses {dict(usual.statuses)}",
        f"{OVERLOAD} times as many: p99 of predictions {over.p99 / usual.p99:.2f} times, "
        f"predictions a second {over.rate / usual.rate:.2f} times, "
        f"memory {after / before:.2f} times; {statuses}",
        f"in the second after: p99 {again.p99 / usual.p99:.2f} times, "
        f"predictions a second {again.rate / usual.rate:.2f} times",
    ]


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
