"""`python -m benchmarks.serving`: install peers, serve one graph in all, measure, write the page.

python -m benchmarks.serving [--rounds 3] [--seconds 1] [--only ours Triton] [--page FILE]

Servers run side by side and are loaded in turn, round after round, so that other work on the
machine meets all alike; ratios are taken within a round. Needs `wrk` (Debian: apt-get install wrk).
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console

from benchmarks.serving import model
from benchmarks.serving.page import OURS, write_page
from benchmarks.serving.plot import draw
from benchmarks.serving.running import Burst, Running, free_port, started
from benchmarks.serving.servers import CACHE, Best, Server, Setting, install, ours, servers

console = Console(stderr=True)


@dataclass(frozen=True)
class Case:
    """One kind of load."""

    rows: int
    connections: int
    is_binary: bool = False

    @property
    def name(self) -> str:
        """In a table."""
        kind = "binary" if self.is_binary else "JSON"
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        return f"{rows} {kind}, {self.connections} connection{'s' * (self.connections > 1)}"


CASES = (
    Case(1, 1),
    Case(1, 16),
    Case(1, 64),
    Case(32, 16),
    Case(1, 64, is_binary=True),
    Case(32, 16, is_binary=True),
)


COLD_STARTS = 5


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to measure, and how long."""

    rounds: int = 3
    seconds: int = 1
    """Of one burst."""
    workers: int = 2
    """Processes or instances that each server may have."""
    only: tuple[str, ...] = ()
    """Beginnings of the names of servers; default: all."""
    python: str = "/usr/bin/python3"
    """For the peers' environments; Triton's Python backend runs with Debian's 3.11 only."""
    folder: Path = CACHE
    """Where peers are installed, once."""
    page: Path | None = None
    """File to write, such as docs/performance.md, with a figure beside it."""


@dataclass
class Results:
    """Everything that was measured."""

    bursts: dict[tuple[str, str], list[Burst]] = field(default_factory=dict)
    """By server and case, one for each round."""
    memory_mb: dict[str, float] = field(default_factory=dict)
    resident_mb: dict[str, float] = field(default_factory=dict)
    """Of a server's largest process."""
    cold_seconds: list[float] = field(default_factory=list)
    """Of ours, from its command to readiness, one for each start."""
    missing: dict[str, str] = field(default_factory=dict)
    """Servers that did not start, and why."""
    load_average: float = field(default_factory=lambda: os.getloadavg()[0])
    """Before anything of this ran."""
    raw_us: dict[int, float] = field(default_factory=dict)
    """ONNX Runtime alone, microseconds of a call by its rows."""


def main(options: Options) -> None:
    """Measure and write."""
    # As an exception, so that no server is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    if shutil.which("wrk") is None:
        sys.exit("error: this comparison needs wrk: apt-get install wrk")
    bundle = model.write(options.folder / "model")
    graph = options.folder / "model" / "model.onnx"
    results = Results(raw_us=_raw(graph))
    chosen = [
        server
        for server in servers()
        if not options.only or any(server.name.startswith(name) for name in options.only)
    ]
    with ExitStack() as stack:
        running = [
            one
            for server in chosen
            for one in _started(stack, server, bundle, graph, options, results)
        ]
        folders = {
            (one.server.name, case): folder
            for one in running
            for case in CASES
            if (folder := _bodies(one, case, graph, options.folder)) is not None
        }
        for one in running:
            one.rest()
        for number in range(options.rounds):
            console.print(f"round {number + 1} of {options.rounds}")
            for case in CASES:
                for one in running:
                    if (one.server.name, case) in folders:
                        folder = folders[(one.server.name, case)]
                        with one.awake():
                            burst = one.burst(folder, case.connections, options.seconds)
                        results.bursts.setdefault((one.server.name, case.name), []).append(burst)
        results.memory_mb = {one.server.name: one.memory_mb() for one in running}
        results.resident_mb = {one.server.name: one.resident_mb() for one in running}
    if not options.only or "ours" in options.only:
        results.cold_seconds = _cold_starts(bundle, options)
    print(publish(results, options))


def publish(results: Results, options: Options) -> str:
    """Write the page, and its figure beside it, where that is asked for; the page."""
    cases = [case.name for case in CASES]
    figure = None
    # Ours alone is beside nothing.
    if options.page is not None and {name for name, _ in results.bursts} > {OURS}:
        figure = options.page.with_suffix(".svg")
        draw(results, cases, figure)
    text = write_page(results, cases, options.workers, figure and figure.name)
    if options.page is not None:
        options.page.write_text(text, encoding="utf-8")
    return text


def _started(
    stack: ExitStack, server: Server, bundle: Path, graph: Path, options: Options, results: Results
) -> list[Running]:
    console.print(f"starting {server.name}")
    folder = options.folder / server.name.lower().replace(",", "").replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        python = install(server.packages, folder, options.python)
        setting = Setting(folder, python, bundle, graph, free_port(), options.workers)
        return [stack.enter_context(started(server, setting))]
    except Exception as error:  # noqa: BLE001 - whatever a peer's installation may do
        results.missing[server.name] = str(error)
        console.print(f"[red]{server.name} is left out: {error}")
        return []


def _cold_starts(bundle: Path, options: Options) -> list[float]:
    """Seconds from the command to readiness, with nothing else running."""
    folder, seconds = options.folder / "cold", []
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(COLD_STARTS):
        python = Path(sys.executable)
        setting = Setting(folder, python, bundle, bundle, free_port(), options.workers)
        begun = time.monotonic()
        with started(ours("protocol"), setting):
            seconds.append(time.monotonic() - begun)
    return seconds


def _bodies(one: Running, case: Case, graph: Path, home: Path) -> Path | None:
    """Write the requests of a case for one server, after checking the answers to all of them."""
    build = one.server.binary if case.is_binary else one.server.body
    if build is None:
        return None
    folder = home / "bodies" / f"{one.server.name}-{case.name}".replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    session = model.session(graph)
    for number in range(model.BODIES):
        rows = model.rows(case.rows, seed=100 + number)
        feed = {"features": rows, "k": np.array(model.TOP_K, np.int64)}
        scores, labels = session.run(["top_scores", "top_labels"], feed)
        body = build(rows)
        best: Best = (labels, scores)
        one.check(rows, body, best)
        (folder / f"body-{number}").write_bytes(body.content)
        lines = [f"{name}: {value}" for name, value in body.headers.items()]
        (folder / "headers").write_text("\n".join(lines))
    return folder


def _raw(graph: Path) -> dict[int, float]:
    session, k = model.session(graph), np.array(model.TOP_K, np.int64)
    best = {}
    for count in (1, 32, 64):
        feed, times = {"features": model.rows(count), "k": k}, []
        for _ in range(200):
            begun = time.perf_counter()
            session.run(["top_scores", "top_labels"], feed)
            times.append(time.perf_counter() - begun)
        best[count] = float(np.median(times)) * 1e6
    return best


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
