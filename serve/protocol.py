"""The fast path inside uvicorn's HTTP protocol: busy routes without scope, task or future.

A request to a busy route is answered from the parser's callbacks: the last byte of its body queues
its rows, and the batch that scores them writes the answer. Everything else takes uvicorn's own way
to the ASGI application. Requests of one connection are answered in their order, whichever way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    RequestResponseCycle,
)

from serve import fastpath
from serve.batching import Job, Outcome
from serve.errors import CLOSE_HEADER, BusyError, ClientGoneError, Reply
from serve.exchange import Exchange, Headers, Target
from serve.guard import GuardedProtocol
from serve.heads import Head, KnownHeads
from serve.routes import find_target
from serve.service import Service

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class FastCycle:
    """One request to a busy route; `response_complete` and `keep_alive` are uvicorn's names."""

    # On the class, as most requests never change them.
    keep_alive = True
    expects_continue = False
    response_complete = False
    is_refused = False
    is_whole = False
    is_gone = False
    chunks: list[bytes] | None = None
    size = 0
    exchange: Exchange | None = None
    job: Job | None = None
    timer: asyncio.TimerHandle | None = None

    def __init__(self, target: Target, headers: Headers) -> None:
        self.target = target
        self.headers = headers


class FastProtocol(GuardedProtocol):
    """One connection.

    At most one request of a connection is active; those that were sent without waiting for its
    answer stay in `pipeline` until their turn, and meanwhile nothing more is read.
    """

    # uvicorn declares them for its own kind of request alone.
    cycle: Any
    pipeline: deque[tuple[Any, ASGI3Application]]

    def __init__(self, service: Service, heads: KnownHeads, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(service.visitors, **options)
        self._service = service
        self._heads = heads
        self._is_between = True  # what comes next is the first byte of a request
        self._left = 0  # bytes to come of the body of a request whose headers were known
        self._active: FastCycle | RequestResponseCycle | None = None
        self._is_advancing = False
        self._idle_since: float | None = None
        self._date_headers: list[tuple[bytes, bytes]] | None = None
        self._date_bytes = b""

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        """Leave the ASGI scope to requests that need one."""
        self.head_bytes = 0
        self._is_between = False
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        """Start a busy request, or hand any other to ASGI."""
        self.head_bytes = None
        parser = self.parser
        target = find_target(self.url) if parser.get_method() == b"POST" else None
        if target is None or parser.should_upgrade():
            self._to_asgi()
            return
        self.cycle = cycle = FastCycle(target, dict(self.headers))
        cycle.keep_alive = parser.should_keep_alive() and parser.get_http_version() != "1.0"
        cycle.expects_continue = self.expect_100_continue
        if self.transport.is_closing():
            cycle.response_complete = True  # sent after a request that was the last
        elif self._active is None and not self.pipeline and not self.flow.write_paused:
            self._start(cycle)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _to_asgi(self) -> None:
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Collect a body; the limit is checked before a piece is kept."""
        cycle = self.cycle
        if type(cycle) is not FastCycle:
            super().on_body(body)
            return
        if cycle.response_complete or cycle.is_refused:
            return
        cycle.size += len(body)
        if cycle.exchange is not None:
            try:
                self._service.check_size(cycle.size)
            except Exception as error:  # noqa: BLE001 - the service answers it
                self._settle(cycle, error)
                return
        if cycle.chunks is None:
            cycle.chunks = []
        cycle.chunks.append(body)

    def on_message_complete(self) -> None:
        """Queue the rows of a body that is whole."""
        self._is_between = True
        cycle = self.cycle
        if type(cycle) is not FastCycle:
            super().on_message_complete()
            return
        cycle.is_whole = True
        if cycle.exchange is not None and not (cycle.response_complete or cycle.is_refused):
            self._enqueue(cycle)

    # The life of a busy request.

    def _start(self, cycle: FastCycle) -> None:
        """Give a request its turn, which may be over at once."""
        self._active = cycle
        cycle.exchange = exchange = self._service.begin(cycle.target, cycle.headers)
        try:
            self._service.admit(exchange)
            self._service.check_size(cycle.size)
        except Exception as error:  # noqa: BLE001 - the service answers or logs it
            self._turn_away(cycle, error)
            return
        if cycle.is_whole:
            self._enqueue(cycle)
        elif cycle.expects_continue:
            self.transport.write(CONTINUE)

    def _start_known(self, head: Head, body: bytes) -> None:
        """Give its turn to a request whose headers were admitted before."""
        self._active = self.cycle = cycle = FastCycle(head.target, head.headers)
        self._left = head.length - len(body)
        self._is_between = cycle.is_whole = not self._left
        cycle.exchange = self._service.begin(head.target, head.headers)
        try:
            self._service.check_open(cycle.exchange)
        except Exception as error:  # noqa: BLE001 - the service answers or logs it
            self._turn_away(cycle, error)
            return
        if cycle.is_whole:
            self._queue_rows(cycle, body)
        else:
            cycle.chunks = [body]
            self._watch_body(cycle)

    def _take_body(self, data: bytes) -> bytes:
        """Collect a body without the parser, which never saw its headers; what comes after it."""
        body, after = data[: self._left], data[self._left :]
        self._left -= len(body)
        if self.cycle.chunks is not None:  # nobody waits for what was refused or given up
            self.cycle.chunks.append(body)
        if not self._left:
            self.on_message_complete()
        return after

    def _enqueue(self, cycle: FastCycle) -> None:
        if cycle.timer is not None:
            cycle.timer.cancel()
        chunks, cycle.chunks = cycle.chunks or [], None
        self._queue_rows(cycle, chunks[0] if len(chunks) == 1 else b"".join(chunks))

    def _queue_rows(self, cycle: FastCycle, body: bytes) -> None:
        assert cycle.exchange is not None  # noqa: S101 - it has had its turn
        try:
            done = partial(self._settle, cycle)
            cycle.job = self._service.enqueue(cycle.exchange, body, done)
        except Exception as error:  # noqa: BLE001 - the service answers or logs it
            self._turn_away(cycle, error)

    def _turn_away(self, cycle: FastCycle, error: Exception) -> None:
        """Answer a request that is not taken; where the queue is full, only after a moment.

        A client that asks again at once then takes less time from those that are answered.
        """
        if not isinstance(error, BusyError):
            self._settle(cycle, error)
            return
        cycle.is_refused = True
        cycle.chunks = None
        cycle.timer = self.loop.call_later(fastpath.BUSY_SECONDS, self._settle, cycle, error)

    def _settle(self, cycle: FastCycle, outcome: Outcome) -> None:
        """Answer a request and let the next one begin; called once for each that had its turn."""
        assert cycle.exchange is not None  # noqa: S101 - it has had its turn
        cycle.response_complete = True
        cycle.job = None
        cycle.chunks = None
        if cycle.timer is not None:
            cycle.timer.cancel()
        if isinstance(outcome, ClientGoneError):
            self._service.forget(cycle.exchange)
        else:
            reply = self._service.reply(cycle.exchange, outcome)
            if not cycle.is_gone:
                self._write(cycle, reply)
        self._service.end()
        self.on_response_complete()

    def _write(self, cycle: FastCycle, reply: Reply) -> None:
        is_last = not cycle.keep_alive or CLOSE_HEADER in reply.more
        if is_last and CLOSE_HEADER not in reply.more:
            reply = reply._replace(more=[*reply.more, CLOSE_HEADER])
        start = STATUS_LINE[reply.status] + self._default_headers()
        self.transport.write(b"%b%b\r\n%b" % (start, reply.lines, reply.body))
        if is_last:
            self.transport.close()

    def _default_headers(self) -> bytes:
        """The date, which uvicorn renews every second."""
        headers = self.server_state.default_headers
        if headers is not self._date_headers:
            self._date_headers = headers
            lines = [name + b": " + value + b"\r\n" for name, value in headers]
            self._date_bytes = b"".join(lines)
        return self._date_bytes

    # The connection.

    def data_received(self, data: bytes) -> None:
        """Parse what came; a body that is not whole by then has to come in time."""
        if self._left:
            data = self._take_body(data)
            if not data:
                return
        is_next = self._is_between and self._active is None and not self.flow.write_paused
        known = self._heads.split(data) if is_next else None
        if known is not None:
            self._idle_since = None
            self._start_known(*known)
            return
        super().data_received(data)
        cycle = self._active
        if type(cycle) is not FastCycle:
            return
        is_waiting = not cycle.is_whole and cycle.timer is None
        if is_next and (cycle.job is not None or is_waiting):
            self._heads.learn(data, cycle.target, cycle.headers)
        if is_waiting:
            self._watch_body(cycle)

    def _watch_body(self, cycle: FastCycle) -> None:
        cycle.timer = self.loop.call_later(
            fastpath.BODY_SECONDS, lambda: self._settle(cycle, fastpath.body_timeout_error())
        )

    def on_response_complete(self) -> None:
        """Start the pipelined requests, one after another; a request may end as it starts."""
        self.server_state.total_requests += 1
        self._active = None
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            self._advance()
        finally:
            self._is_advancing = False

    def _advance(self) -> None:
        while not self.transport.is_closing():
            if self.flow.write_paused:
                self.flow.pause_reading()
                return
            if not self.pipeline:
                self.flow.resume_reading()
                self._start_idling()
                return
            cycle, app = self.pipeline.pop()
            if not self.pipeline:
                self.flow.resume_reading()
            if type(cycle) is not FastCycle:
                self._start_asgi_task(cycle, app)
                return
            self._start(cycle)
            if not cycle.response_complete:
                if not cycle.is_whole and cycle.timer is None:
                    self._watch_body(cycle)
                return

    def resume_writing(self) -> None:
        """The client has read enough: go on with what it asked meanwhile."""
        super().resume_writing()
        if self._active is None and not self._is_advancing:
            self._advance()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of a request whose client is gone: its rows need not be scored."""
        cycle, self._active = self._active, None
        # uvicorn tells the request that came last, which may be one that never had its turn.
        self.cycle = None if type(cycle) is FastCycle else cycle
        self.pipeline.clear()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        super().connection_lost(exc)
        if type(cycle) is not FastCycle:
            return
        cycle.is_gone = True
        if cycle.job is not None:
            cycle.job.is_abandoned = True
        else:
            self._settle(cycle, ClientGoneError())

    # The keep-alive timer: one that is left to run costs less than one made anew for each request.

    def _start_idling(self) -> None:
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._set_keepalive(self.timeout_keep_alive)

    def _set_keepalive(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been idle long enough; look again later at any other."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._set_keepalive(left)
        elif not self.transport.is_closing():
            self.transport.close()
