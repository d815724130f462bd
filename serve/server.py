"""One process that serves: uvicorn speaks HTTP, this decides when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from serve.app import create_app
from serve.guard import GuardedProtocol
from serve.heads import KnownHeads
from serve.library import sources_of
from serve.protocol import FastProtocol
from serve.service import Place, Service
from serve.settings import Settings
from train.errors import ConfigError

# Of --grace, for closing connections after the last answer; uvicorn looks only every 0.1 s.
CLOSING_SHARE = 0.2
# While a model runs in a thread the event loop should not wait Python's 5 ms for its turn.
SWITCH_SECONDS = 2e-4
# Connections that wait to be accepted; more than that is for another server to take.
BACKLOG = 2048


def serve_here(
    settings: Settings,
    listeners: list[socket.socket],
    place: Place,
    on_ready: Callable[[Service], None],
    life: int | None = None,
) -> None:
    """Load the models and answer until SIGTERM or SIGINT, then what was accepted, and return.

    Args:
        settings: What to serve and how.
        listeners: Where connections are accepted; more processes may do so.
        place: This process among them.
        on_ready: Told when requests can be sent.
        life: A file that ends when this process should, too.

    Raises:
        UserError: A bundle cannot be served.
    """
    # What the imports made stays, and going through it again would stop all requests meanwhile.
    gc.freeze()
    predictors = [source.open(settings) for source in sources_of(settings)]
    app = create_app(settings, predictors, place)
    sys.setswitchinterval(SWITCH_SECONDS)
    server = DrainingServer(http_config(app, settings), app.state.service, settings.grace, life)
    server.on_ready = partial(on_ready, app.state.service)
    server.run(sockets=listeners)


def http_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """How uvicorn is to serve the application."""
    fast: Any = partial(FastProtocol, app.state.service, KnownHeads())
    guarded: Any = partial(GuardedProtocol, app.state.service.visitors)
    return uvicorn.Config(
        app,
        http=fast if settings.http == "protocol" else guarded,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        # Behind a proxy the client's address does not matter here: nothing is decided by it.
        proxy_headers=False,
    )


class DrainingServer(uvicorn.Server):
    """Answers what it accepted and refuses the rest after one signal, stops at once after two.

    uvicorn alone would close its listener at once, so that nobody could see `/readyz` turn 503, and
    would end by the signal instead of with exit code 0.
    """

    on_ready: Callable[[], None]

    def __init__(
        self, config: uvicorn.Config, service: Service, grace: float, life: int | None = None
    ) -> None:
        super().__init__(config)
        self._service = service
        self._grace = grace
        self._life = life
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then say so."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self._life is not None:
            self._loop.add_reader(self._life, self._on_orphaned, self._life)
        self._service.telemetry.refresh()
        self.on_ready()

    def _on_orphaned(self, life: int) -> None:
        asyncio.get_running_loop().remove_reader(life)
        self._on_signal()

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


def listen(host: str, port: int, count: int) -> list[socket.socket]:
    """One listening socket for each worker, all at the same address.

    The kernel deals new connections out to them by the client's address. A socket outlives the
    worker that accepts from it, so that what waits there is answered by the next one.

    Raises:
        ConfigError: The address cannot be listened on.
    """
    # Alone first: sockets that share an address would also share it with another server.
    first = _bound(host, port, is_shared=False)
    if count == 1:
        return [first]
    port = first.getsockname()[1]
    first.close()
    return [_bound(host, port, is_shared=True) for _ in range(count)]


def _bound(host: str, port: int, *, is_shared: bool) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        # Two sockets may bind the same address; only one may listen.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        hint = "choose another --port (0 picks a free one)"
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            hint = "choose another --host"
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigError(f"cannot listen on {host}:{port} ({reason}): {hint}") from error
    return listener


def url_of(settings: Settings, listener: socket.socket) -> str:
    """The address that clients connect to."""
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "http" if settings.tls_cert is None else "https"
    return f"{scheme}://{name}:{listener.getsockname()[1]}"


def check_tls(settings: Settings) -> None:
    """Refuse a certificate that cannot be used, before any process is started.

    Raises:
        ConfigError: It or its key cannot be read, or they do not belong together.
    """
    if settings.tls_cert is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:  # as are those of `ssl`
        raise ConfigError(
            f"--tls-cert {settings.tls_cert} and --tls-key {settings.tls_key} cannot be used "
            f"({error.strerror or error}): give a certificate and its key in PEM"
        ) from error
