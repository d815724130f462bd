"""`python -m serve`: one process for each core, watched over by one that answers nothing itself.

A worker that dies is started again at its place: the same listening socket, the same counters. On
SIGTERM or SIGINT all workers answer what they accepted; when the parent dies they do so, too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import multiprocessing
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from multiprocessing.context import ForkProcess
from types import FrameType
from typing import Any

from serve.control import Control
from serve.counters import Counters
from serve.door import door_of
from serve.server import check_tls, listen, serve_here, url_of
from serve.service import Place, Service
from serve.settings import Settings
from serve.telemetry import GAUGES, peak_memory_bytes
from train.errors import ConfigError, UserError

logger = logging.getLogger("serve")

LOOK_SECONDS = 0.1
RESTART_SECONDS = 1.0
"""At least between two starts of a worker, so that one that cannot live does not eat a core."""
LAST_SECONDS = 5.0
"""After --grace, that a worker has to end before it is killed."""


def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, then answer what was accepted and return.

    Args:
        settings: What to serve, where and how.
        announce: Told one line when requests can be sent, and one about the start.

    Raises:
        UserError: A bundle cannot be served, or the address cannot be listened on.
    """
    started = time.monotonic()
    check_tls(settings)
    door_of(settings)  # a mistake in it is told before any process is started
    listeners = listen(settings.host, settings.port, settings.worker_count)
    admin: list[socket.socket] = []
    if settings.admin_port is not None:
        admin = listen(settings.host, settings.admin_port, settings.worker_count)
        settings = replace(settings, admin_port=admin[0].getsockname()[1])

    def on_ready(reports: list[dict[str, Any]]) -> None:
        names = ", ".join(reports[0]["models"])
        providers = ", ".join(reports[0]["providers"])
        announce(f"serving {names} on {url_of(settings, listeners[0])}")
        megabytes = sum(report["bytes"] for report in reports) / 1e6
        announce(
            f"ready after {time.monotonic() - started:.1f} s, {len(listeners)} worker(s) with at "
            f"most {megabytes:,.0f} MB in memory, on {providers}"
        )
        if admin:
            announce(f"administration on {url_of(settings, admin[0])}")

    with contextlib.ExitStack() as open_sockets:
        for listener in [*listeners, *admin]:
            open_sockets.enter_context(listener)
        if len(listeners) == 1:
            place = Place()
            own = [*listeners, *admin]
            serve_here(settings, own, place, lambda service: on_ready([_report(service)]))
        else:
            Supervisor(settings, _by_worker(listeners, admin), on_ready).run()


def _by_worker(
    listeners: list[socket.socket], admin: list[socket.socket]
) -> list[list[socket.socket]]:
    return (
        [list(pair) for pair in zip(listeners, admin, strict=True)]
        if admin
        else [[listener] for listener in listeners]
    )


def _report(service: Service) -> dict[str, Any]:
    loaded = [name for model in service.models.values() for name in model.predictor.providers]
    return {
        "models": list(service.models),
        "providers": list(dict.fromkeys(loaded)),
        "bytes": peak_memory_bytes(),
    }


class Supervisor:
    """Starts the workers, starts them again, and ends them."""

    def __init__(
        self,
        settings: Settings,
        listeners: list[list[socket.socket]],
        on_ready: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        self._settings = settings
        self._listeners = listeners
        self._on_ready = on_ready
        self._counters = Counters(len(listeners))
        self._control = Control(len(listeners))
        self._life, self._life_end = os.pipe()
        self._reports, self._reports_end = os.pipe()
        self._workers: list[ForkProcess | None] = [None] * len(listeners)
        self._started = [0.0] * len(listeners)
        self._ready: dict[int, dict[str, Any]] = {}
        self._stopped_at: float | None = None

    def run(self) -> None:
        """Serve until a signal.

        Raises:
            UserError: The workers cannot serve what they should.
        """
        before = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            while self._stopped_at is None or any(self._workers):
                self._tend()
                self._read_reports()
        finally:
            for worker in filter(None, self._workers):
                worker.kill()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopped_at = self._stopped_at or time.monotonic()
        for worker in filter(None, self._workers):
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, signal.SIGTERM)

    def _tend(self) -> None:
        """Start the workers that are missing, and look after those that do not end."""
        now = time.monotonic()
        for place, worker in enumerate(self._workers):
            if worker is not None and not worker.is_alive():
                self._bury(place, worker)
            elif worker is None and self._stopped_at is None:
                if now >= self._started[place] + RESTART_SECONDS:
                    self._start(place)
            elif worker is not None and now > self._last_moment:
                worker.kill()

    @property
    def _last_moment(self) -> float:
        if self._stopped_at is None:
            return math.inf
        return self._stopped_at + self._settings.grace + LAST_SECONDS

    def _start(self, place: int) -> None:
        context = multiprocessing.get_context("fork")
        worker = context.Process(target=self._work, args=(place,), name=f"worker {place}")
        worker.start()
        self._workers[place], self._started[place] = worker, time.monotonic()

    def _bury(self, place: int, worker: ForkProcess) -> None:
        self._workers[place] = None
        slab = self._counters.slabs[place]
        for key, numbers in slab.items():
            if key[0] in GAUGES:
                slab.series(key, len(numbers))[0] = 0.0
        if self._stopped_at is not None:
            for listener in self._listeners[place]:
                listener.close()
        else:
            logger.warning("worker %d ended with %s: starting another", place, worker.exitcode)

    def _read_reports(self) -> None:
        if not select.select([self._reports], [], [], LOOK_SECONDS)[0]:
            return
        for line in os.read(self._reports, 2**16).splitlines():
            report = json.loads(line)
            if "error" in report:
                raise ConfigError(report["error"])
            was_ready = len(self._ready) == len(self._workers)
            self._ready[report["worker"]] = report
            if len(self._ready) == len(self._workers) and not was_ready:
                self._on_ready([self._ready[place] for place in sorted(self._ready)])

    def _work(self, place: int) -> None:
        """The life of a worker, in a process of its own."""
        # Of its own group, so that Ctrl-C reaches the parent alone and is passed on once.
        os.setpgid(0, 0)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.close(self._life_end)
        others = [own for other, own in enumerate(self._listeners) if other != place]
        for listener in chain.from_iterable(others):
            listener.close()

        def tell(report: dict[str, Any]) -> None:
            os.write(self._reports_end, json.dumps({"worker": place, **report}).encode() + b"\n")

        try:
            serve_here(
                self._settings,
                self._listeners[place],
                Place(place, self._counters, self._control),
                lambda service: tell(_report(service)),
                self._life,
            )
        except UserError as error:
            if place not in self._ready:
                tell({"error": str(error)})
            sys.exit(2)
