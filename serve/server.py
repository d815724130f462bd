"""From settings to a listening server: uvicorn speaks HTTP, this decides when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from export.bundle import load_bundle
from serve.app import create_app
from serve.predictor import OnnxPredictor
from serve.protocol import FastProtocol
from serve.service import Service
from serve.settings import Settings
from train.errors import ConfigError

# Of --grace, for closing connections after the last answer; uvicorn looks only every 0.1 s.
CLOSING_SHARE = 0.2
# While a model runs in a thread the event loop should not wait Python's 5 ms for its turn.
SWITCH_SECONDS = 2e-4


def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Load the bundles and listen; after SIGTERM or SIGINT answer what was accepted and return.

    Args:
        settings: What to serve, where and how.
        announce: Told one line when requests can be sent.

    Raises:
        UserError: A bundle cannot be served, or the address cannot be listened on.
    """
    started = time.monotonic()
    predictors = [
        OnnxPredictor(
            load_bundle(path), threads=settings.threads, max_batch_rows=settings.max_batch_rows
        )
        for path in settings.bundles
    ]
    app = create_app(settings, predictors)
    listener = _listen(settings.host, settings.port)
    sys.setswitchinterval(SWITCH_SECONDS)
    config = http_config(app, settings)
    names = ", ".join(app.state.service.models)
    address = f"http://{_url_host(settings.host)}:{listener.getsockname()[1]}"
    server = DrainingServer(config, app.state.service, settings.grace)

    def on_ready() -> None:
        announce(f"serving {names} on {address}")
        announce(f"ready after {time.monotonic() - started:.1f} s, {_resident()}")

    server.on_ready = on_ready
    server.run(sockets=[listener])


def http_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """How uvicorn is to serve the application."""
    fast: Any = partial(FastProtocol, app.state.service)
    return uvicorn.Config(
        app,
        http=fast if settings.http == "protocol" else "httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # Behind a proxy the client's address does not matter here: nothing is decided by it.
        proxy_headers=False,
    )


class DrainingServer(uvicorn.Server):
    """Answers what it accepted and refuses the rest after one signal, stops at once after two.

    uvicorn alone would close its listener at once, so that nobody could see `/readyz` turn 503, and
    would end by the signal instead of with exit code 0.
    """

    on_ready: Callable[[], None]

    def __init__(self, config: uvicorn.Config, service: Service, grace: float) -> None:
        super().__init__(config)
        self._service = service
        self._grace = grace
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then say so."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Leave the work to the loop: a signal arrives between any two instructions."""
        if self._loop is None:
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self._on_signal)

    def _on_signal(self) -> None:
        if self._draining is not None:
            self.should_exit = self.force_exit = True
        else:
            self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        deadline = time.monotonic() + self._grace
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._service.drain(), self._grace * (1 - CLOSING_SHARE))
        # uvicorn declares whole seconds and passes the number to asyncio as it is.
        left = max(deadline - time.monotonic() - 0.2, 0)
        self.config.timeout_graceful_shutdown = left  # type: ignore[assignment]
        self.should_exit = True


def _resident() -> str:
    """What the process has in memory, files that are mapped included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return f"{peak * (1 if sys.platform == 'darwin' else 1024) / 1e6:,.0f} MB in memory at most"


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # Two sockets may bind the same address; only one may listen.
        listener.listen()
    except OSError as error:
        listener.close()
        hint = "choose another --port (0 picks a free one)"
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            hint = "choose another --host"
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigError(f"cannot listen on {host}:{port} ({reason}): {hint}") from error
    return listener


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
