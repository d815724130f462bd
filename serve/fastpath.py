"""Pure ASGI around FastAPI: busy routes never reach it, all else gets a request id.

FastAPI's routing and validation cost several times what a small model does, so the busy routes
go straight to the service. They are declared to FastAPI all the same, see `serve.app`. This is the
portable half of the fast path, for any ASGI server; `serve.protocol` is the faster one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.batching import Outcome
from serve.errors import BodyTimeoutError, BusyError, ClientGoneError, Reply, error_reply
from serve.exchange import Exchange, Target
from serve.routes import find_target
from serve.service import Service
from serve.tracing import Attributes

logger = logging.getLogger("serve")

BODY_SECONDS = 30.0
BUSY_SECONDS = 0.05
"""A refusal for a full queue waits so long; asked again at once it takes the time of others."""


class FastPath:
    """Answers predictions itself and passes everything else on; stands before all of FastAPI."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one connection of any kind."""
        target = None
        if scope["type"] == "http" and scope["method"] == "POST":
            target = find_target(_url(scope))
        if target is None:
            await self._app(scope, receive, send)
        else:
            await self._predict(target, scope, receive, send)

    async def _predict(self, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        exchange = service.begin(target, dict(scope["headers"]))
        try:
            outcome = await self._outcome(exchange, receive)
            if isinstance(outcome, ClientGoneError):
                service.forget(exchange)
            else:
                await _send(send, service.reply(exchange, outcome))
        except ClientGoneError:
            pass  # the answer was counted, and has no reader
        finally:
            service.end()

    async def _outcome(self, exchange: Exchange, receive: Receive) -> Outcome:
        """Everything between the headers and the answer; an error becomes a value."""
        try:
            self._service.admit(exchange)
            body = await read_body(receive, self._service.check_size)
            return await self._scores(exchange, body, receive)
        except BusyError as error:
            await asyncio.sleep(BUSY_SECONDS)
            return error
        except Exception as error:  # noqa: BLE001 - the service answers or logs it
            return error

    async def _scores(self, exchange: Exchange, body: bytes, receive: Receive) -> Outcome:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        job = self._service.enqueue(exchange, body, partial(settle, future))
        if exchange.batcher.runs_inline(job.rows):
            return await future
        # The wait may be long enough for the client to hang up, and then its rows need not run.
        hang_up = asyncio.ensure_future(receive())
        hang_up.add_done_callback(lambda _: setattr(job, "is_abandoned", True))
        try:
            return await future
        finally:
            hang_up.cancel()


class RequestIds:
    """Middleware of all other routes: an id for each request, and our error shape for our bugs."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one connection of any kind."""
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        request_id = self._service.request_id(dict(scope["headers"]))
        scope.setdefault("state", {})["request_id"] = request_id
        has_started = False

        async def send_with_id(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                self._trace(scope, message["status"], request_id, time.perf_counter() - started)
                message["headers"] = _with_request_id(message.get("headers", []), request_id)
            await _pass_on(send, message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientGoneError:
            pass
        except Exception as error:
            logger.exception("request %s failed", request_id, extra={"request_id": request_id})
            if has_started:
                raise
            reply = error_reply(error, request_id)
            self._trace(scope, reply.status, request_id, time.perf_counter() - started)
            await _send(send, reply)

    def _trace(self, scope: Scope, status: int, request_id: str, seconds: float) -> None:
        tracing, route = self._service.tracing, scope.get("route")
        if tracing is None:
            return
        # The route and not the path, which may hold anything.
        attributes: Attributes = {
            "http.request.method": scope["method"],
            "http.route": getattr(route, "path", "unknown"),
            "labelwright.request_id": request_id,
        }
        name = f"{scope['method']} {attributes['http.route']}"
        tracing.record(name, dict(scope["headers"]), seconds, status, attributes)


async def read_body(receive: Receive, check_size: Callable[[int], None]) -> bytes:
    """The whole body, which for small ones is the first message.

    Raises:
        ClientGoneError: The connection ended before the body did.
        BodyTimeoutError: The rest of the body did not come in time.
        TooLargeError: It is larger than `check_size` lets pass.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            message = await receive()
            if not message.get("more_body"):
                return _chunk(message)
            chunks = [_chunk(message)]
            size = len(chunks[0])
            while message.get("more_body"):
                check_size(size)
                message = await receive()
                chunks.append(_chunk(message))
                size += len(chunks[-1])
    except TimeoutError as error:
        raise body_timeout_error() from error
    check_size(size)
    return b"".join(chunks)


def body_timeout_error() -> BodyTimeoutError:
    """The refusal of a body that stopped arriving."""
    return BodyTimeoutError(f"the body did not arrive within {BODY_SECONDS:g} s: send it again")


def _url(scope: Scope) -> bytes:
    """The address as it was sent; servers that do not tell have decoded the path."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return path + b"?" + query if query else path


def _chunk(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientGoneError
    body: bytes = message.get("body", b"")
    return body


def settle(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    """Set a result that somebody may wait for no longer."""
    if not future.done():
        future.set_result(outcome)


async def _send(send: Send, reply: Reply) -> None:
    start = {"type": "http.response.start", "status": reply.status, "headers": reply.headers}
    await _pass_on(send, start)
    await _pass_on(send, {"type": "http.response.body", "body": reply.body})


async def _pass_on(send: Send, message: Message) -> None:
    """Send a part of an answer, unless the connection ended and uvicorn has not heard of it yet."""
    try:
        await send(message)
    except RuntimeError as error:
        if "closed" not in str(error):
            raise
        raise ClientGoneError from error


def _with_request_id(
    headers: list[tuple[bytes, bytes]], request_id: str
) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name != b"x-request-id"]
    return [*kept, (b"x-request-id", request_id.encode())]
