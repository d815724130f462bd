"""Who asks: the request's id, and the trace that it belongs to, as headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from uuid import uuid4

from labelwright_client._errors import InvalidArgument

REQUEST_ID = "x-request-id"
TRACE_HEADERS = ("traceparent", "tracestate")
VISIBLE = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True)
class Asker:
    """The headers that tell one request from all others; retries keep them."""

    request_id: str
    trace: Mapping[str, str]


def asker(request_id: str | None = None, trace: Mapping[str, str] | None = None) -> Asker:
    """Take the caller's id and trace headers, else a new id and the trace that is under way.

    Raises:
        InvalidArgument: An id that the server would not take, or other headers than a trace's.
    """
    if request_id is not None and not VISIBLE.fullmatch(request_id):
        raise InvalidArgument(
            f"request_id is {request_id!r}: expected 1 to 128 visible ASCII characters"
        )
    return Asker(request_id or uuid4().hex, _current() if trace is None else _given(trace))


def _given(trace: Mapping[str, str]) -> dict[str, str]:
    headers = {name.lower(): value for name, value in trace.items()}
    for name, value in headers.items():
        if name not in TRACE_HEADERS:
            raise InvalidArgument(
                f"trace has the header {name!r}: expected {' and '.join(TRACE_HEADERS)} only"
            )
        if not value.isascii() or not value.isprintable():
            raise InvalidArgument(f"{name} is {value!r}: expected visible ASCII characters")
    return headers


def _current() -> dict[str, str]:
    headers: dict[str, str] = {}
    inject = _injector()
    if inject is not None:
        inject(headers)
    return headers


@cache  # an import that fails looks through all folders each time
def _injector() -> Callable[[dict[str, str]], None] | None:
    """What OpenTelemetry, where it is installed, writes the current context with."""
    try:
        from opentelemetry.propagate import inject  # noqa: PLC0415 - must not be needed
    except ImportError:
        return None
    return inject
