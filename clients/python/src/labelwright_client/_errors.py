"""Every error of this package, in one tree.

    ClientError
    ├── InvalidArgument      refused here, before anything was sent (also a ValueError)
    ├── ServerUnreachable    no connection, or it broke before the answer      retried
    ├── RequestTimedOut      no answer in time
    │   └── DeadlineExceeded     504: the server gave up (also a StatusError)
    ├── BadAnswer            an answer came, but not one of a Labelwright server
    └── StatusError          the server said no: status, type, message, request_id
        ├── InvalidInput         4xx: the same request will fail again
        ├── ServerBusy           429, 503: try later, see retry_after          retried
        ├── DeadlineExceeded     504
        └── ServerFailed         every other 5xx: a bug of the server

The status alone chooses the class of a StatusError: a proxy's HTML page for 503 is ServerBusy too.
"""
# ruff: noqa: N818 - the names say what happened, and `except ServerBusy` needs no suffix

from __future__ import annotations


class ClientError(Exception):
    """The base of all; `request_id` is what to paste in a bug report, None if nothing was sent."""

    # All arguments stay positional in `args`, without which an exception cannot be unpickled
    # and would break a process pool instead of reaching its parent.
    def __init__(self, message: str, request_id: str | None = None) -> None:
        super().__init__(message, request_id)
        self.message = message
        self.request_id = request_id

    def __str__(self) -> str:
        return f"{self.message} (request {self.request_id})" if self.request_id else self.message


class InvalidArgument(ClientError, ValueError):
    """An argument that cannot be sent; nothing was."""


class ServerUnreachable(ClientError):
    """The server cannot be connected to, or the connection broke before it answered."""


class RequestTimedOut(ClientError):
    """No answer came in time; the server may still be working on it, so it is not asked again."""


class BadAnswer(ClientError):
    """The answer is not one of a Labelwright server: most often `base_url` names another one."""


class StatusError(ClientError):
    """The server answered with an error; `type` is its name for it."""

    def __init__(self, message: str, request_id: str | None, status: int, type: str) -> None:
        super().__init__(message, request_id)
        self.args = (message, request_id, status, type)
        self.status = status
        self.type = type

    def __str__(self) -> str:
        return f"{self.status} {self.type}: {super().__str__()}"


class InvalidInput(StatusError):
    """4xx: rows, options or model name are not what the server takes; its message says what is."""


class ServerBusy(StatusError):
    """429 or 503: full, loading or draining; `retry_after` is in seconds, None if it gave none."""

    def __init__(
        self,
        message: str,
        request_id: str | None,
        status: int,
        type: str,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, request_id, status, type)
        self.args = (message, request_id, status, type, retry_after)
        self.retry_after = retry_after


class DeadlineExceeded(StatusError, RequestTimedOut):
    """504: the server, or a proxy before it, gave up waiting for the prediction."""


class ServerFailed(StatusError):
    """Every 5xx but 503 and 504: a bug of the server, to be found in its log by `request_id`."""
