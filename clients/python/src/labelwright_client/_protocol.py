"""Answers, errors and the rules of retrying as pure functions: no socket, no clock, no dice."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from random import Random
from typing import Any, TypeVar

import httpx

from labelwright_client._answers import WrongShape, error_of, read_error
from labelwright_client._calls import Call
from labelwright_client._errors import (
    BadAnswer,
    ClientError,
    InvalidArgument,
    InvalidInput,
    RequestTimedOut,
    ServerBusy,
    ServerUnreachable,
    StatusError,
)
from labelwright_client._trace import REQUEST_ID
from labelwright_client._version import __version__

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8000"
URL_VARIABLE = "LABELWRIGHT_URL"
KEY_VARIABLE = "LABELWRIGHT_API_KEY"
HEADERS = {"user-agent": f"labelwright-client/{__version__}", "accept": "application/json"}

FIRST_BACKOFF = 0.25
LONGEST_BACKOFF = 8.0
LONGEST_RETRY_AFTER = 60.0
POLL_INTERVAL = 0.25


def server_url(given: str | None, environ: Mapping[str, str]) -> httpx.URL:
    """Choose the address (first match wins): the argument, LABELWRIGHT_URL, http://127.0.0.1:8000."""
    text = given or environ.get(URL_VARIABLE) or DEFAULT_URL
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise InvalidArgument(f"base_url {text!r} is no address: {error}") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise InvalidArgument(f"base_url is {text!r}: expected an address such as {DEFAULT_URL}")
    return url


def key_headers(given: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The header that shows a key (first match wins): the argument, LABELWRIGHT_API_KEY, none."""
    key = given or environ.get(KEY_VARIABLE)
    if not key:
        return {}
    if not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidArgument("api_key must be visible ASCII characters, as the server's key is")
    return {"authorization": f"Bearer {key}"}


def check_options(timeout: float, max_retries: int) -> None:
    """Refuse a client that could wait for ever or not even try once."""
    if not 0 < timeout < math.inf:
        raise InvalidArgument(f"timeout is {timeout}: expected a positive number of seconds")
    if max_retries < 0:
        raise InvalidArgument(f"max_retries is {max_retries}: expected 0 (never retry) or more")


def read_answer(call: Call[T], response: httpx.Response) -> T:
    """Read what a call returns, or raise the error that the answer stands for."""
    if response.status_code >= 400:
        raise status_error(response, call.request_id)
    try:
        if response.status_code != 200:
            raise WrongShape(f"status {response.status_code}")
        return call.read(_json(response))
    except WrongShape as wrong:
        raise BadAnswer(
            f"{_origin(response.url)} did not answer {call.method} {call.path} "
            f"as a Labelwright server does ({wrong}): "
            "check base_url and the versions of client and server",
            response.headers.get(REQUEST_ID, call.request_id),
        ) from wrong


def status_error(response: httpx.Response, sent_id: str) -> StatusError:
    """Make the error of a status of 400 or more; the body adds its words if it is of our shape."""
    status = response.status_code
    fallback_id = response.headers.get(REQUEST_ID, sent_id)
    try:
        type_, message, request_id = read_error(_json(response))
    except WrongShape:
        # Not ours but a proxy's: its status is still the best there is to go by.
        type_, request_id = "unknown", None
        reason = response.reason_phrase or "an error"
        message = f"{reason} from {_origin(response.url)}, without explanation"
    request_id = request_id or fallback_id
    return error_of(status, type_, message, request_id, retry_after_of(response))


def transport_error(error: httpx.RequestError, call: Call[Any], timeout: float) -> ClientError:
    """Make the error of a request that got no answer; failing to connect in time is unreachable."""
    server = _origin(error.request.url)
    if isinstance(error, httpx.DecodingError):
        return BadAnswer(f"{server} sent a body that cannot be decoded: {error}", call.request_id)
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return RequestTimedOut(
            f"no answer from {server} to {call.method} {call.path} within {timeout:g} s: "
            "send fewer rows at a time or raise timeout",
            call.request_id,
        )
    reason = str(error) or type(error).__name__
    return ServerUnreachable(
        f"cannot reach {server} ({reason}): is the server running, and is base_url right?",
        call.request_id,
    )


def retry_delay(error: ClientError, attempt: int, max_retries: int, rng: Random) -> float | None:
    """Seconds to wait before asking again, or None to give up; `attempt` counts from 0.

    Every call only asks, so a broken connection, 429 and 503 may be repeated; a timeout is not, as
    the server may be working on it still. `Retry-After` is obeyed up to a minute; else the wait is
    uniform between 0 and a ceiling that doubles (full jitter: clients that failed together must
    not come back together).
    """
    if attempt >= max_retries or not isinstance(error, ServerUnreachable | ServerBusy):
        return None
    told = error.retry_after if isinstance(error, ServerBusy) else None
    if told is not None and told <= LONGEST_RETRY_AFTER:
        return told
    return rng.uniform(0.0, min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0**attempt))


def retry_after_of(response: httpx.Response) -> float | None:
    """Seconds in `Retry-After`; None if absent, negative or not a number, such as a date."""
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0.0 <= seconds < math.inf else None


def is_not_ready(error: ClientError) -> bool:
    """Whether waiting can help; it cannot where a 4xx or a stranger's answer came from."""
    return not isinstance(error, InvalidInput | BadAnswer)


def poll_delay(reason: ClientError, timeout: float, remaining: float) -> float:
    """Seconds until the next look at readiness; raises RequestTimedOut when none remain."""
    if remaining <= 0:
        raise RequestTimedOut(
            f"the server was not ready within {timeout:g} s, at last because: {reason.message}",
            reason.request_id,
        ) from reason
    return min(POLL_INTERVAL, remaining)


def _origin(url: httpx.URL) -> str:
    # Not str(url), which would write a password of the address into logs.
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def _json(response: httpx.Response) -> object:
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError) as error:
        raise WrongShape("the body is not JSON") from error
