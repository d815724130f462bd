"""Request ids and traces: the caller's own, OpenTelemetry's, or none."""

from __future__ import annotations

import sys

import pytest

from labelwright_client import InvalidArgument, InvalidInput
from labelwright_client._trace import _injector

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def fresh():
    _injector.cache_clear()
    yield
    _injector.cache_clear()


@pytest.fixture
def without_opentelemetry(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", None)


@pytest.mark.parametrize("ask", ["predict", "embed", "compare"])
def test_the_callers_id_and_trace_are_sent(server, connect, ask):
    trace = {"Traceparent": PARENT, "tracestate": "vendor=1"}
    answer = getattr(connect(server.url), ask)([[1.0]], request_id="order-66", trace=trace)
    (seen,) = server.seen
    assert answer.request_id == seen.headers["x-request-id"] == "order-66"
    assert (seen.headers["traceparent"], seen.headers["tracestate"]) == (PARENT, "vendor=1")


def test_the_callers_id_is_in_errors_and_kept_by_retries(server, connect):
    server.then(503, b"", retry_after="0")
    server.then(404, b"")
    with pytest.raises(InvalidInput) as caught:
        connect(server.url).predict([[1.0]], request_id="order-66", trace={"traceparent": PARENT})
    assert caught.value.request_id == "order-66"
    assert [seen.headers["x-request-id"] for seen in server.seen] == ["order-66"] * 2
    assert [seen.headers["traceparent"] for seen in server.seen] == [PARENT] * 2


@pytest.mark.parametrize("request_id", ["", "a b", "é", "x" * 129, "line\n"])
def test_an_id_that_the_server_would_not_take_is_refused(server, connect, request_id):
    with pytest.raises(InvalidArgument, match="expected 1 to 128 visible ASCII characters"):
        connect(server.url).predict([[1.0]], request_id=request_id)


@pytest.mark.parametrize(
    ("trace", "words"),
    [({"authorization": "x"}, "'authorization': expected traceparent and tracestate only"),
     ({"traceparent": "a\r\nb: c"}, "expected visible ASCII"),
     ({"tracestate": "é"}, "expected visible ASCII")],
)  # fmt: skip
def test_other_headers_than_those_of_a_trace_are_refused(server, connect, trace, words):
    with pytest.raises(InvalidArgument, match=words):
        connect(server.url).predict([[1.0]], trace=trace)
    assert server.seen == []


def test_without_opentelemetry_there_is_no_trace(server, connect, without_opentelemetry):
    connect(server.url).predict([[1.0]])
    assert "traceparent" not in server.seen[0].headers


@pytest.mark.parametrize("many", [False, True])
def test_the_current_context_of_opentelemetry_is_passed_on(server, connect, many):
    trace = pytest.importorskip("opentelemetry.trace")
    context = pytest.importorskip("opentelemetry.context")
    span = trace.NonRecordingSpan(
        trace.SpanContext(
            trace_id=0x0AF7651916CD43DD8448EB211C80319C,
            span_id=0xB7AD6B7169203331,
            is_remote=False,
            trace_flags=trace.TraceFlags(1),
        )
    )
    client = connect(server.url)
    token = context.attach(trace.set_span_in_context(span))
    try:
        if many:
            list(client.predict_many([[1.0], [2.0]], chunk_rows=1))
        else:
            client.predict([[1.0]])
        client.predict([[1.0]], trace={})
    finally:
        context.detach(token)
    *traced, untraced = server.seen
    assert [seen.headers["traceparent"] for seen in traced] == [PARENT] * (2 if many else 1)
    assert "traceparent" not in untraced.headers
