"""Every way a request can fail: one table from exception to status, one shape on the wire.

    {"error": {"type": "invalid_input", "message": "one sentence", "request_id": "..."}}

ApiError
├── MalformedBodyError     400  the body is no JSON
├── UnauthorizedError      401  no key, or none that this server knows
├── ForbiddenError         403  a key that does not open this route
├── UnknownModelError      404  no such model is loaded
├── BodyTimeoutError       408  the body did not arrive in time
├── TooLargeError          413  more bytes or rows than this server takes
├── UnsupportedTypeError   415  a body that is declared to be something other than JSON
├── InvalidInputError      422  JSON of the wrong shape, type or range
├── RetryLaterError             sent with Retry-After
│   ├── BusyError          429  the queue is full
│   ├── RateLimitError     429  the key was used too often
│   └── DrainingError      503  the server is stopping
└── DeadlinePassedError    504  the client's own time limit ran out in the queue
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple

import orjson


class ApiError(Exception):
    """Its message is one sentence for the caller: what was expected, what came, what to do."""


class MalformedBodyError(ApiError):
    """The body is not JSON."""


class UnauthorizedError(ApiError):
    """The request shows no key, or none that this server knows."""


class ForbiddenError(ApiError):
    """The key is known and does not open this route."""


class UnknownModelError(ApiError):
    """No loaded bundle has that name."""


class BodyTimeoutError(ApiError):
    """The body stopped arriving."""


class TooLargeError(ApiError):
    """More bytes or rows than this server takes in one request."""


class UnsupportedTypeError(ApiError):
    """A body that is declared to be something other than JSON."""


class InvalidInputError(ApiError):
    """JSON that no model here can be asked with."""


class RetryLaterError(ApiError):
    """The request is fine and the server is not: worth sending again after a while."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BusyError(RetryLaterError):
    """The queue of the model is full."""


class RateLimitError(RetryLaterError):
    """The key was used more often than its line allows."""


class DrainingError(RetryLaterError):
    """The server has been told to stop."""


class DeadlinePassedError(ApiError):
    """The time the client allowed ran out before a batch took its rows."""


class ClientGoneError(Exception):
    """The caller hung up, so nobody is left to answer."""


TABLE: dict[type[Exception], tuple[HTTPStatus, str]] = {
    MalformedBodyError: (HTTPStatus.BAD_REQUEST, "malformed_body"),
    UnauthorizedError: (HTTPStatus.UNAUTHORIZED, "unauthorized"),
    ForbiddenError: (HTTPStatus.FORBIDDEN, "forbidden"),
    UnknownModelError: (HTTPStatus.NOT_FOUND, "unknown_model"),
    BodyTimeoutError: (HTTPStatus.REQUEST_TIMEOUT, "body_timeout"),
    TooLargeError: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large"),
    UnsupportedTypeError: (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_type"),
    InvalidInputError: (HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_input"),
    BusyError: (HTTPStatus.TOO_MANY_REQUESTS, "busy"),
    RateLimitError: (HTTPStatus.TOO_MANY_REQUESTS, "rate_limited"),
    DrainingError: (HTTPStatus.SERVICE_UNAVAILABLE, "draining"),
    DeadlinePassedError: (HTTPStatus.GATEWAY_TIMEOUT, "deadline_passed"),
}
BUG = (HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error")

Headers = list[tuple[bytes, bytes]]
ASK_FOR_KEY = (b"www-authenticate", b"Bearer")
CLOSE_HEADER = (b"connection", b"close")


class Reply(NamedTuple):
    """A whole HTTP answer, ready for any server to write."""

    status: int
    body: bytes
    request_id: str
    content_type: bytes = b"application/json"
    more: Sequence[tuple[bytes, bytes]] = ()
    """Headers that not every answer has."""

    @property
    def headers(self) -> Headers:
        """All headers, as ASGI takes them."""
        return [
            (b"content-type", self.content_type),
            (b"content-length", b"%d" % len(self.body)),
            (b"x-request-id", self.request_id.encode()),
            *self.more,
        ]

    @property
    def lines(self) -> bytes:
        """All headers, as they are sent."""
        lines = b"content-type: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n" % (
            self.content_type,
            len(self.body),
            self.request_id.encode(),
        )
        for name, value in self.more:
            lines += b"%b: %b\r\n" % (name, value)
        return lines


def status_and_type(error: Exception) -> tuple[int, str]:
    """The HTTP status of an error and its word in answers and metrics."""
    return TABLE.get(type(error), BUG)


def error_message(error: Exception) -> str:
    """One sentence for the caller; what is not in the table is our bug and tells no details."""
    if type(error) in TABLE:
        return str(error)
    return "the server failed on this request: give the request id to whoever runs it"


def error_reply(error: Exception, request_id: str) -> Reply:
    """The answer to a failed request."""
    status, kind = status_and_type(error)
    message = error_message(error)
    headers: Headers = []
    if isinstance(error, RetryLaterError):
        headers.append((b"retry-after", str(error.retry_after).encode()))
    if isinstance(error, UnauthorizedError):
        headers.append(ASK_FOR_KEY)
    if isinstance(error, DrainingError):
        headers.append(CLOSE_HEADER)
    return problem(status, kind, message, request_id, headers)


def problem(
    status: int, kind: str, message: str, request_id: str, headers: Headers | None = None
) -> Reply:
    """An error answer in the common shape, whatever part of the server noticed the error."""
    body = orjson.dumps({"error": {"type": kind, "message": message, "request_id": request_id}})
    return Reply(status, body, request_id, more=headers or ())
