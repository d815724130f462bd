"""The rules of retrying and the choice of address, without a socket."""

from __future__ import annotations

import math
import statistics
from random import Random

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwright_client import (
    BadAnswer,
    ClientError,
    InvalidArgument,
    InvalidInput,
    RequestTimedOut,
    ServerBusy,
    ServerFailed,
    ServerUnreachable,
)
from labelwright_client._calls import Choice, predict_call, ready_call
from labelwright_client._protocol import (
    check_options,
    poll_delay,
    retry_after_of,
    retry_delay,
    server_url,
    transport_error,
)
from labelwright_client._trace import asker


def dice(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - jitter is no secret


def busy(retry_after: float | None) -> ServerBusy:
    return ServerBusy("full", "id", 503, "busy", retry_after)


@given(st.integers(0, 20), st.integers(0, 2**32))
def test_backoff_stays_under_a_ceiling_that_doubles_up_to_eight_seconds(attempt, seed):
    ceiling = min(8.0, 0.25 * 2**attempt)
    for error in (ServerUnreachable("gone"), busy(None), busy(61.0)):
        delay = retry_delay(error, attempt, 99, dice(seed))
        assert delay is not None
        assert 0.0 <= delay <= ceiling


def test_jitter_is_full_and_not_a_band_around_the_ceiling():
    rng = dice(0)
    delays = [retry_delay(busy(None), 2, 99, rng) for _ in range(2000)]
    assert min(delays) < 0.01
    assert max(delays) > 0.99
    assert statistics.mean(delays) == pytest.approx(0.5, abs=0.03)  # 0.03 is 4.6 standard errors


@pytest.mark.parametrize("told", [0.0, 0.5, 60.0])
def test_a_sane_retry_after_is_obeyed_to_the_letter(told):
    assert retry_delay(busy(told), 0, 2, dice(0)) == told


def test_the_last_attempt_is_not_followed_by_another():
    assert retry_delay(busy(1.0), 1, 2, dice(0)) == 1.0
    assert retry_delay(busy(1.0), 2, 2, dice(0)) is None
    assert retry_delay(busy(1.0), 0, 0, dice(0)) is None


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgument("no"),
        BadAnswer("no"),
        RequestTimedOut("late"),
        InvalidInput("no", "id", 422, "invalid_input"),
        ServerFailed("no", "id", 500, "internal"),
    ],
)
def test_nothing_else_is_repeated(error):
    assert retry_delay(error, 0, 99, dice(0)) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"Retry-After": "0.25"}, 0.25),
        ({"retry-after": "3600"}, 3600.0),
        ({}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
    ],
)
def test_retry_after_is_read_as_seconds_or_not_at_all(header, seconds):
    assert retry_after_of(httpx.Response(503, headers=header)) == seconds


@pytest.mark.parametrize(
    ("given_url", "environ", "chosen"),
    [
        ("http://a:1", {"LABELWRIGHT_URL": "http://b:2"}, "http://a:1"),
        (None, {"LABELWRIGHT_URL": "http://b:2"}, "http://b:2"),
        (None, {"LABELWRIGHT_URL": ""}, "http://127.0.0.1:8000"),
        (None, {}, "http://127.0.0.1:8000"),
        ("https://host/prefix/", {}, "https://host/prefix/"),
    ],
)
def test_the_address_is_the_first_one_given(given_url, environ, chosen):
    assert str(server_url(given_url, environ)) == chosen


@pytest.mark.parametrize("text", ["localhost:8000", "ftp://host", "/path", "http://", "http://h:x"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(InvalidArgument, match="base_url"):
        server_url(text, {})


@pytest.mark.parametrize("timeout", [0.0, -1.0, math.nan, math.inf])
def test_a_timeout_that_is_no_deadline_is_refused(timeout):
    with pytest.raises(InvalidArgument, match=r"timeout is .*: expected a positive number"):
        check_options(timeout, 2)


def test_a_negative_number_of_retries_is_refused():
    check_options(0.1, 0)
    with pytest.raises(InvalidArgument, match="max_retries is -1"):
        check_options(0.1, -1)


def test_polling_never_sleeps_past_the_deadline_and_names_the_last_reason():
    reason = ServerUnreachable("cannot reach it", "id-7")
    assert poll_delay(reason, 30.0, remaining=10.0) == 0.25
    assert poll_delay(reason, 30.0, remaining=0.1) == 0.1
    with pytest.raises(
        RequestTimedOut, match="within 30 s, at last because: cannot reach it"
    ) as late:
        poll_delay(reason, 30.0, remaining=0.0)
    assert late.value.request_id == "id-7"
    assert late.value.__cause__ is reason


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx.ConnectError("refused"), ServerUnreachable),
        (httpx.ConnectTimeout(""), ServerUnreachable),
        (httpx.ReadError("reset"), ServerUnreachable),
        (httpx.RemoteProtocolError("closed"), ServerUnreachable),
        (httpx.ProxyError("no proxy"), ServerUnreachable),
        (httpx.ReadTimeout("late"), RequestTimedOut),
        (httpx.WriteTimeout("late"), RequestTimedOut),
        (httpx.PoolTimeout("late"), RequestTimedOut),
        (httpx.DecodingError("bad gzip"), BadAnswer),
    ],
)
def test_every_failure_of_the_transport_has_a_class_and_hides_the_password(error, kind):
    error.request = httpx.Request("GET", "http://user:secret@host:81/readyz")
    made = transport_error(error, ready_call(asker("id-1")), timeout=5.0)
    assert type(made) is kind
    assert made.request_id == "id-1"
    assert "http://host:81" in str(made)
    assert "secret" not in str(made)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 1.5}, "top_k is 1.5: expected a whole number"),
        ({"threshold": math.nan}, "threshold is nan"),
        ({"threshold": [0.5]}, r"threshold is \[0.5\]: expected a finite number"),
        ({"threshold": 10**400}, "threshold is 1000"),
    ],
)
def test_options_that_json_cannot_carry_are_refused(options, message):
    with pytest.raises(ClientError, match=message) as caught:
        predict_call([[1.0]], Choice(**options), asker("i"))
    assert type(caught.value) is InvalidArgument
