"""A server that runs: whether its answers are right, how fast they come and what they cost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from numpy.typing import NDArray

from benchmarks.serving.model import BODIES
from benchmarks.serving.servers import Best, Body, Server, Setting

HERE = Path(__file__).parent
TICK = 1 / os.sysconf("SC_CLK_TCK")
START_SECONDS = 120
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Burst:
    """One server under one load for a short time."""

    requests_per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """Of all its processes, for each request."""


@dataclass(frozen=True)
class Running:
    """A started server."""

    server: Server
    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def ask(self, body: Body) -> httpx.Response:
        """Send one request."""
        return httpx.post(
            self.url + self.server.path, content=body.content, headers=body.headers, timeout=30
        )

    def check(self, rows: NDArray[np.float32], body: Body, expected: Best) -> None:
        """Stop the comparison if the server answers anything but what the graph says."""
        answer = self.ask(body)
        if answer.status_code != 200:
            raise SystemExit(f"{self.server.name}: {answer.status_code} {answer.text[:300]}")
        if self.server.read is None:
            return
        labels, scores = self.server.read(answer.headers, answer.content)
        if not (labels == expected[0]).all() or not np.allclose(
            scores, expected[1], rtol=0, atol=TOLERANCE
        ):
            raise SystemExit(f"{self.server.name} gave wrong answers for {len(rows)} rows")

    def burst(self, folder: Path, connections: int, seconds: float) -> Burst:
        """Send the requests of a folder from so many connections."""
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
        command += ["-s", str(HERE / "load.lua"), self.url + self.server.path]
        environment = {**os.environ, "BODIES": str(folder), "COUNT": str(BODIES)}
        before = self.cpu_seconds()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        cpu = self.cpu_seconds() - before
        seen = json.loads(done.stdout.strip().splitlines()[-1])
        if seen["failed"] or not seen["requests"]:
            raise SystemExit(f"{self.server.name}: {seen} with {connections} connections")
        return Burst(
            seen["requests"] / seen["seconds"],
            seen["p50"],
            seen["p99"],
            cpu / seen["requests"] * 1e6,
        )

    def processes(self) -> list[int]:
        """It and all processes that it started."""
        found, new = [], [self.process.pid]
        while new:
            pid = new.pop()
            found.append(pid)
            with suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    new += map(int, (task / "children").read_text().split())
        return found

    def rest(self) -> None:
        """Leave the cores to the others, if it would not by itself."""
        if self.server.is_restless:
            self._signal(signal.SIGSTOP)

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Its turn."""
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.rest()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.processes():
            with suppress(OSError):
                os.kill(pid, number)

    def cpu_seconds(self) -> float:
        """User and system time of all of them."""
        ticks = 0
        for pid in self.processes():
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks * TICK

    def memory_mb(self) -> float:
        """Proportional set size of all of them: what they share counts once."""
        return sum(self._megabytes("Pss:"))

    def resident_mb(self) -> float:
        """Of the largest of them, what it shares included."""
        return max(self.residents_mb())

    def residents_mb(self) -> list[float]:
        """Of each of them, what they share included."""
        return self._megabytes("Rss:")

    def _megabytes(self, field: str) -> list[float]:
        found = []
        for pid in self.processes():
            with suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith(field):
                        found.append(int(line.split()[1]) / 1024)
        return found


@contextmanager
def started(server: Server, setting: Setting) -> Iterator[Running]:
    """Start a server and wait until it is ready; in the end stop all its processes."""
    command, environment = server.start(setting)
    log = (setting.folder / "log").open("wb")
    process = subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=setting.folder,
    )
    running = Running(server, setting.port, process)
    try:
        _wait(running, setting.folder / "log")
        yield running
    finally:
        # Some leave their children behind, so each is told.
        processes = running.processes()
        for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
            for pid in processes:
                with suppress(OSError):
                    os.kill(pid, number)
            if number == signal.SIGTERM:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
        process.wait()
        log.close()


def _wait(running: Running, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and running.process.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(running.url + running.server.ready, timeout=5).status_code == 200:
                return
        time.sleep(0.02)
    text = log.read_text(errors="replace")[-1500:]
    raise RuntimeError(f"{running.server.name} did not start:\n{text}")


def free_port() -> int:
    """A port that is free, as are the two after it."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            with socket.socket() as second, socket.socket() as third, suppress(OSError):
                second.bind(("127.0.0.1", port + 1))
                third.bind(("127.0.0.1", port + 2))
                return int(port)
