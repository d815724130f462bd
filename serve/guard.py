"""What one connection may take: bytes and seconds for its headers, time to be read, its number.

uvicorn limits none of it. Whole requests in one piece, which most are, cost nothing here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serve.errors import problem

MOST_HEAD_BYTES = 64 * 2**10
"""Of the request line and the headers, beyond their first piece, which has 256 KiB at most."""
HEAD_SECONDS = 10.0
"""From the connection, or from its first byte, to the end of a request's headers."""
READ_SECONDS, LEAST_READ = 30.0, 32 * 2**10
"""A client has to read so many bytes of an answer in so many seconds."""


class Visitors:
    """Connections of this worker by the address of the client."""

    def __init__(self, most: int) -> None:
        self._most = most  # 0: any number
        self._counts: Counter[str] = Counter()

    def enter(self, client: str) -> bool:
        """Count a connection; whether it is one too many."""
        self._counts[client] += 1
        return bool(self._most) and self._counts[client] > self._most

    def leave(self, client: str) -> None:
        """Forget a connection."""
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]


class GuardedProtocol(HttpToolsProtocol):
    """One connection that cannot be held for ever by sending or reading slowly."""

    head_bytes: int | None = None
    """Of headers that are not complete; None between them."""

    def __init__(self, visitors: Visitors, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(**options)
        self._visitors = visitors
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_since = 0.0
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and wait for its first request for a while."""
        super().connection_made(transport)
        if self._visitors.enter(self._address):
            self._refuse(429, "too_many_connections", "close some of your connections")
        else:
            self._watch_head()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def on_message_begin(self) -> None:
        """Begin to count."""
        self.head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End to count."""
        self.head_bytes = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Parse what came; headers that are not whole by then are watched."""
        super().data_received(data)
        if self.head_bytes is not None:
            self._grow_head(len(data))

    def _grow_head(self, size: int) -> None:
        if self.transport.is_closing():
            return
        if not self.head_bytes:
            self.head_bytes = 1  # in which piece others may have come before it: not counted
            self._watch_head()
            return
        self.head_bytes += size
        if self.head_bytes > MOST_HEAD_BYTES:
            self._refuse(
                431, "headers_too_large", f"send headers of at most {MOST_HEAD_BYTES} bytes"
            )

    def _watch_head(self) -> None:
        self._head_since = self.loop.time()
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._on_head_timer)

    def _on_head_timer(self) -> None:
        self._head_timer = None
        has_come = self.head_bytes is None and self.cycle is not None
        if has_come or self.transport.is_closing():
            return
        left = self._head_since + HEAD_SECONDS - self.loop.time()
        if left > 0:
            self._head_timer = self.loop.call_later(left, self._on_head_timer)
        else:
            self._refuse(408, "header_timeout", f"send the headers within {HEAD_SECONDS:g} s")

    def _refuse(self, status: int, kind: str, sentence: str) -> None:
        reply = problem(status, kind, f"the connection is closed: {sentence}", "-")
        lines = [b"HTTP/1.1 %d \r\n" % status]
        lines += [b"%b: %b\r\n" % header for header in reply.headers]
        self.transport.write(b"".join([*lines, b"connection: close\r\n\r\n", reply.body]))
        self.transport.close()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is answered: see that it reads at all."""
        super().pause_writing()
        self._watch_reading(self.transport.get_write_buffer_size())

    def _watch_reading(self, waiting: int) -> None:
        self._read_timer = self.loop.call_later(READ_SECONDS, self._on_read_timer, waiting)

    def _on_read_timer(self, before: int) -> None:
        waiting = self.transport.get_write_buffer_size()
        if before - waiting >= LEAST_READ:
            self._watch_reading(waiting)
        else:
            self.transport.abort()

    def resume_writing(self) -> None:
        """The client has read enough."""
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the timers."""
        self._visitors.leave(self._address)
        for timer in (self._head_timer, self._read_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
