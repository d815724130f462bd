"""A server in a thread of the test, and a client that sends the bytes it is told to."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from serve.server import http_config
from serve.settings import Settings


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """One connection, byte by byte."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        # Or a second small part would wait for the acknowledgement of the first, 40 ms.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def send(self, *parts: bytes) -> None:
        self.socket.sendall(b"".join(parts))

    def answer(self, *, has_body: bool = True) -> Answer:
        status = int(self.file.readline().split()[1])
        headers = {}
        while (line := self.file.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        length = int(headers.get("content-length", 0)) if has_body and status >= 200 else 0
        return Answer(status, headers, self.file.read(length))

    def is_closed(self) -> bool:
        """Whether the server ended the connection, after all that it had to say."""
        return self.file.read(1) == b""

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def request(body: bytes, *headers: str, path: str = "/predict", method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: server", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass(frozen=True)
class Live:
    """A running server; `service` belongs to its thread."""

    app: Any
    port: int
    loop: asyncio.AbstractEventLoop

    @property
    def service(self) -> Any:
        return self.app.state.service

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def wire(self) -> Iterator[Wire]:
        with closing(Wire(self.port)) as wire:
            yield wire

    def post(self, body: Any, **options: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/predict", json=body, **options)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.service.telemetry.registry.get_sample_value(name, labels)

    def wait_for_metric(self, value: float, name: str, **labels: str) -> None:
        for _ in range(3000):
            if (self.metric(name, **labels) or 0.0) == value:
                return
            threading.Event().wait(0.01)
        raise AssertionError(f"{name}{labels} is {self.metric(name, **labels)}, not {value}")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_listening = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.is_listening.set()


@contextmanager
def live(app: Any, settings: Settings, *, timeout_keep_alive: int = 5) -> Iterator[Live]:
    """Serve an application until the block ends."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = http_config(app, settings)
        config.timeout_keep_alive = timeout_keep_alive
        server = _Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        assert server.is_listening.wait(30)
        try:
            yield Live(app, listener.getsockname()[1], server.loop)
        finally:
            server.should_exit = True
            thread.join(30)
