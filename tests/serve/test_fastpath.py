"""Bare ASGI messages: bodies in pieces, and clients that hang up."""

from __future__ import annotations

import asyncio
import json
import threading

import orjson
import pytest

ROW = [0.1] * 6
SCOPE = {"type": "http", "method": "POST", "path": "/predict", "headers": []}


def messages(*chunks):
    """An ASGI `receive` that counts how many chunks were asked for."""
    left = list(chunks)

    async def receive():
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return receive, left


def exchange(app, receive, headers=()):
    """The status and body that the application sends for a bare ASGI request."""
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(app.app({**SCOPE, "headers": list(headers)}, receive, send))
    return sent


def test_a_large_body_is_refused_by_its_announced_length(serve_app):
    app = serve_app(max_body_mb=1)
    receive, left = messages(b"never read")
    [start, end] = exchange(app, receive, [(b"content-length", b"1048577")])
    assert start["status"] == 413
    assert json.loads(end["body"])["error"]["type"] == "too_large"
    assert left == [b"never read"]


def test_a_large_body_of_unknown_length_is_not_read_to_its_end(serve_app):
    app = serve_app(max_body_mb=1)
    receive, left = messages(*[b" " * 2**19] * 8)
    [start, _] = exchange(app, receive)
    assert start["status"] == 413
    assert len(left) == 5


def test_a_body_in_chunks_is_put_together(app):
    body = orjson.dumps({"inputs": [ROW]})
    receive, _ = messages(body[:5], b"", body[5:])
    [start, _] = exchange(app, receive)
    assert start["status"] == 200


def test_a_client_that_hangs_up_while_sending_gets_no_answer(app):
    parts = iter(
        [
            {"type": "http.request", "body": b"{", "more_body": True},
            {"type": "http.disconnect"},
        ]
    )

    async def receive():
        return next(parts)

    assert exchange(app, receive) == []
    assert app.metric("labelwright_rejections_total", reason="client_gone") == 1
    assert app.metric("labelwright_in_flight_requests") == 0


def test_a_client_that_hangs_up_while_waiting_is_not_scored(serve_app, monkeypatch):
    app = serve_app(slow=True)
    predictor = app.app.state.service.models["tiny"].predictor
    gate, scored, run = threading.Event(), [], predictor.run

    def slow_run(features, k, **options):
        scored.append(len(features))
        assert gate.wait(10)
        return run(features, k, **options)

    monkeypatch.setattr(predictor, "run", slow_run)
    parts = [
        {"type": "http.request", "body": orjson.dumps({"inputs": [ROW]}), "more_body": False},
        {"type": "http.disconnect"},
    ]

    async def receive():
        if len(parts) == 1:
            gate.set()
        return parts.pop(0)

    async def talk(client):
        first = asyncio.ensure_future(client.post("/predict", json={"inputs": [ROW, ROW]}))
        while not scored:
            await asyncio.sleep(0)
        await app.app(dict(SCOPE), receive, no_answer)
        return await first

    assert app.run(talk).status_code == 200
    assert scored == [2]
    assert app.metric("labelwright_rejections_total", reason="client_gone") == 1


async def no_answer(message):
    raise AssertionError(f"nobody is there to be told {message}")


def test_a_body_that_stops_arriving_is_given_up(app, monkeypatch):
    monkeypatch.setattr("serve.fastpath.BODY_SECONDS", 0.01)
    started = False

    async def receive():
        nonlocal started
        if started:
            await asyncio.Event().wait()
        started = True
        return {"type": "http.request", "body": b"{", "more_body": True}

    [start, end] = exchange(app, receive)
    assert start["status"] == 408
    assert json.loads(end["body"])["error"]["type"] == "body_timeout"


def test_the_client_may_be_gone_when_the_answer_is_sent(app):
    """The request is over all the same, or the server would never finish draining."""

    async def send(_):
        raise OSError("connection lost")

    receive, _ = messages(orjson.dumps({"inputs": [ROW]}))
    with pytest.raises(OSError, match="connection lost"):
        asyncio.run(app.app(dict(SCOPE), receive, send))
    assert app.metric("labelwright_in_flight_requests") == 0
