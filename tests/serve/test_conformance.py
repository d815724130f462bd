"""What every HTTP front end must do: run against the protocol's fast path and the ASGI one."""

from __future__ import annotations

import gzip
import io
import json
import logging
import socket
import threading
import time

import httpx
import numpy as np
import pytest

from labelwright_client import Client
from serve.fastpath import BUSY_SECONDS
from serve.settings import Settings
from tests.serve.live import Live, live, request


@pytest.fixture(params=["protocol", "asgi"])
def http(request):
    return request.param


@pytest.fixture
def start(serve_app, bundle_path, http):
    """Starts a server with the settings given, `slow=True` for a model that runs in a thread."""

    def build(*, slow=False, **settings):
        app = serve_app(bundle_path, slow=slow, **settings).app
        return live(app, Settings(bundles=(bundle_path,), http=http, **settings))

    return build


@pytest.fixture
def server(start):
    with start() as running:
        yield running


@pytest.fixture
def gate(monkeypatch):
    """Makes the model of a server wait for `gate.set()`, and counts the rows it was given."""

    def install(running: Live):
        predictor = running.service.models["tiny"].predictor
        event, scored, run = threading.Event(), [], predictor.run

        def slow_run(features, k, **options):
            scored.append(len(features))
            assert event.wait(30)
            return run(features, k, **options)

        monkeypatch.setattr(predictor, "run", slow_run)
        return event, scored

    return install


def body_of(rows, **fields):
    return json.dumps({"inputs": rows, **fields}).encode()


def labels_of(answer):
    return [row["labels"] for row in answer.json()["predictions"]]


def expected(model, rows, top_k):
    return [[name for name, _ in model.expected(row, top_k)] for row in rows]


def test_a_request_is_answered_with_all_its_headers(server, model):
    rows = model.rows(2)
    with server.wire() as wire:
        wire.send(request(body_of(rows, top_k=3), "x-request-id: mine"))
        answer = wire.answer()
    assert answer.status == 200
    assert labels_of(answer) == expected(model, rows, 3)
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == "mine"
    assert set(answer.headers) == {"date", "content-type", "content-length", "x-request-id"}
    assert answer.headers["content-type"] == "application/json"


def test_a_connection_is_kept_for_many_requests(server, model):
    rows = model.rows(20)
    with server.wire() as wire:
        for row in rows:
            wire.send(request(body_of([row], top_k=2)))
            assert labels_of(wire.answer()) == expected(model, [row], 2)


def test_a_request_like_the_one_before_may_come_in_any_way(server, model):
    rows = model.rows(1)
    good = request(body_of(rows, top_k=3))
    broken = good[:-1] + b"]"
    other = request(body_of(rows, top_k=2))
    with server.wire() as wire:
        for _ in range(3):
            wire.send(good)
            assert labels_of(wire.answer()) == expected(model, rows, 3)
        wire.send(good[:-5])
        wire.send(good[-5:])
        assert wire.answer().status == 200
        wire.send(broken)
        assert wire.answer().status == 400
        wire.send(good, other, good)
        assert [len(labels_of(wire.answer())[0]) for _ in range(3)] == [3, 2, 3]
        wire.send(good, good[:30])
        assert wire.answer().status == 200
        wire.send(good[30:])
        assert labels_of(wire.answer()) == expected(model, rows, 3)


def test_a_request_like_the_one_before_may_be_cut_anywhere(server, model):
    rows = model.rows(2)
    good, other = request(body_of(rows, top_k=3)), request(body_of(rows[:1], top_k=2))
    with server.wire() as wire:
        wire.send(good)
        assert wire.answer().status == 200
        for cut in range(good.index(b"\r\n\r\n") - 1, len(good)):
            middle = (cut + len(good)) // 2
            for part in (good[:cut], good[cut:middle], good[middle:] + other):
                wire.send(part)
                threading.Event().wait(0.001)
            assert labels_of(wire.answer()) == expected(model, rows, 3)
            assert labels_of(wire.answer()) == expected(model, rows[:1], 2)


@pytest.mark.parametrize("slow", [False, True])
def test_pipelined_requests_are_answered_in_order(start, model, slow):
    rows = model.rows(30)
    with start(slow=slow) as server, server.wire() as wire:
        parts = []
        for index, row in enumerate(rows):
            parts.append(request(body_of([row], top_k=2), f"x-request-id: {index}"))
            if index % 7 == 3:
                parts.append(
                    request(b"", f"x-request-id: get-{index}", path="/healthz", method="GET")
                )
            if index % 7 == 5:
                parts.append(request(b"{", f"x-request-id: bad-{index}"))
        wire.send(*parts)
        for index, row in enumerate(rows):
            answer = wire.answer()
            assert (answer.status, answer.headers["x-request-id"]) == (200, str(index))
            assert labels_of(answer) == expected(model, [row], 2)
            if index % 7 == 3:
                assert wire.answer().headers["x-request-id"] == f"get-{index}"
            if index % 7 == 5:
                assert wire.answer().headers["x-request-id"] == f"bad-{index}"


def test_thousands_of_pipelined_mistakes_are_answered_one_by_one(server):
    """Each is over as it starts, so that a server which starts the next inside would nest."""
    with server.wire() as wire:
        count = 3000
        sender = threading.Thread(target=wire.send, args=(request(b"{") * count,))
        sender.start()
        assert [wire.answer().status for _ in range(count)] == [400] * count
        sender.join()


def test_a_body_may_come_in_chunks(server, model):
    rows = model.rows(3)
    body = body_of(rows, top_k=2)
    head = b"POST /predict HTTP/1.1\r\nhost: server\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = [body[start : start + 7] for start in range(0, len(body), 7)]
    with server.wire() as wire:
        wire.send(head, *(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks), b"0\r\n\r\n")
        assert labels_of(wire.answer()) == expected(model, rows, 2)


def test_a_request_may_come_byte_by_byte(server, model):
    rows = model.rows(1)
    with server.wire() as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request(body_of(rows, top_k=2)):
            wire.send(bytes([byte]))
        assert labels_of(wire.answer()) == expected(model, rows, 2)


def test_a_client_may_wait_for_permission_to_send(server, model):
    rows = model.rows(1)
    body = body_of(rows, top_k=2)
    whole = request(body, "expect: 100-continue")
    with server.wire() as wire:
        for _ in range(2):
            wire.send(whole[: -len(body)])
            assert wire.answer().status == 100
            wire.send(body)
            assert labels_of(wire.answer()) == expected(model, rows, 2)


def test_permission_to_send_comes_after_the_answer_before(start, gate, model):
    rows = model.rows(2)
    first, second = (body_of([row], top_k=2) for row in rows)
    with start(slow=True) as server, server.wire() as wire:
        event, scored = gate(server)
        wire.send(request(first), request(second, "expect: 100-continue")[: -len(second)])
        while not scored:
            threading.Event().wait(0.01)
        event.set()
        assert labels_of(wire.answer()) == expected(model, rows[:1], 2)
        assert wire.answer().status == 100
        wire.send(second)
        assert labels_of(wire.answer()) == expected(model, rows[1:], 2)


def test_permission_is_refused_with_the_reason(start):
    with start(max_body_mb=1) as server, server.wire() as wire:
        head = "POST /predict HTTP/1.1\r\ncontent-length: 1048577\r\nexpect: 100-continue\r\n\r\n"
        wire.send(head.encode())
        answer = wire.answer()
        assert (answer.status, answer.json()["error"]["type"]) == (413, "too_large")
        # The body may or may not follow, so that the connection is of no more use.
        assert answer.headers["connection"] == "close"
        assert wire.is_closed()


@pytest.mark.parametrize("header", ["connection: close", "Connection: Close"])
def test_a_client_may_ask_to_close(server, model, header):
    with server.wire() as wire:
        wire.send(request(body_of(model.rows(1)), header))
        answer = wire.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert wire.is_closed()


def test_what_follows_the_last_request_is_not_answered(server, model):
    body = body_of(model.rows(1))
    with server.wire() as wire:
        wire.send(request(b"{", "connection: close"), request(body))
        assert wire.answer().status == 400
        assert wire.is_closed()
    assert server.metric("labelwright_in_flight_requests") == 0


def test_http_1_0_gets_one_answer(server, model):
    body = body_of(model.rows(1))
    with server.wire() as wire:
        wire.send(b"POST /predict HTTP/1.0\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        answer = wire.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert wire.is_closed()


def test_an_announced_length_beyond_the_limit_is_refused_before_the_body(start, model):
    with start(max_body_mb=1) as server, server.wire() as wire:
        wire.send(b"POST /predict HTTP/1.1\r\ncontent-length: 1048577\r\n\r\n")
        assert wire.answer().json()["error"]["type"] == "too_large"
        # The body is read past, and the connection goes on.
        wire.send(b" " * 1048577, request(body_of(model.rows(1))))
        assert wire.answer().status == 200


def test_a_body_of_unknown_length_is_refused_as_soon_as_it_is_too_long(start, model):
    with start(max_body_mb=1) as server, server.wire() as wire:
        wire.send(b"POST /predict HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(20):
            wire.send(b"10000\r\n", b" " * 65536, b"\r\n")
        assert wire.answer().status == 413
        wire.send(b"0\r\n\r\n", request(body_of(model.rows(1))))
        assert wire.answer().status == 200


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "GET", "PUT", "DELETE"])
def test_other_methods_are_refused(server, method):
    with server.wire() as wire:
        wire.send(request(b"", method=method))
        answer = wire.answer(has_body=method != "HEAD")
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
        if method != "HEAD":
            assert answer.json()["error"]["type"] == "method_not_allowed"
        wire.send(request(b"", path="/healthz", method="GET"))
        assert wire.answer().status == 200


@pytest.mark.parametrize("path", ["/predict/", "/predict%2F", "//predict", "/Predict", "/nothing"])
def test_other_paths_are_not_found(server, path):
    with server.wire() as wire:
        wire.send(request(b"{}", path=path))
        assert wire.answer().json()["error"]["type"] == "not_found"


@pytest.mark.parametrize("path", ["http://server/predict", "/%70redict"])
def test_an_address_may_be_written_in_other_ways(server, model, path):
    with server.wire() as wire:
        wire.send(request(body_of(model.rows(1)), path=path))
        assert wire.answer().status == 200


def test_what_is_no_http_is_refused_and_closed(server):
    with server.wire() as wire:
        wire.send(b"\x16\x03\x01 hello\r\n\r\n")
        assert wire.answer().status == 400
        assert wire.is_closed()


@pytest.mark.parametrize(
    ("body", "headers", "status", "kind"),
    [
        (b"{", [], 400, "malformed_body"),
        (b"", [], 400, "malformed_body"),
        (b'{"inputs": [[1, 2]]}', [], 422, "invalid_input"),
        (b'{"inputs": [[1, 2, 3, 4, 5, true]]}', [], 422, "invalid_input"),
        (b'{"inputs": [[1, 2, 3, 4, 5, 1e39]]}', [], 422, "invalid_input"),
        (b'{"inputs": [[1, 2, 3, 4, 5, [6]]]}', [], 422, "invalid_input"),
        (b'{"inputs": [[1, 2, 3, 4, 5, 6]], "topk": 1}', [], 422, "invalid_input"),
        (b'{"inputs": [[1, 2, 3, 4, 5, 6]], "top_k": 9}', [], 422, "invalid_input"),
        (b'{"inputs": [[1, 2, 3, 4, 5, 6]], "model": "none"}', [], 404, "unknown_model"),
        (b"{}", ["content-type: text/plain"], 415, "unsupported_type"),
        (b"{}", ["content-encoding: br"], 415, "unsupported_type"),
        (b"{}", ["x-timeout-ms: soon"], 422, "invalid_input"),
    ],
)
def test_mistakes_are_answered_and_counted(server, body, headers, status, kind):
    with server.wire() as wire:
        for count in (1, 2):
            wire.send(request(body, "x-request-id: mine", *headers))
            answer = wire.answer()
            error = answer.json()["error"]
            assert (answer.status, error["type"], error["request_id"]) == (status, kind, "mine")
            assert server.metric("labelwright_rejections_total", reason=kind) == count


def test_a_bug_is_a_500_with_an_id_and_the_server_goes_on(server, model, monkeypatch, caplog):
    predictor = server.service.models["tiny"].predictor
    with monkeypatch.context() as broken, caplog.at_level(logging.CRITICAL, "serve"):
        broken.setattr(predictor, "run", lambda *_, **__: 1 / 0)
        answer = server.post({"inputs": model.rows(1)}, headers={"x-request-id": "mine"})
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "internal_error"
    assert answer.headers["x-request-id"] == "mine"
    assert server.post({"inputs": model.rows(1)}).status_code == 200


def test_a_full_queue_is_busy(start, gate, model):
    with start(slow=True, max_queue_rows=2) as server:
        event, scored = gate(server)
        with server.wire() as one, server.wire() as two, server.wire() as three:
            one.send(request(body_of(model.rows(2))))
            while not scored:
                threading.Event().wait(0.01)
            two.send(request(body_of(model.rows(2))))
            server.wait_for_metric(2, "labelwright_queued_rows", model="tiny", method="bce")
            three.send(request(body_of(model.rows(1))))
            refused = three.answer()
            assert (refused.status, refused.json()["error"]["type"]) == (429, "busy")
            assert int(refused.headers["retry-after"]) >= 1
            # Under overload nothing is read that cannot be answered.
            three.send(request(b"not even JSON"))
            assert three.answer().status == 429
            event.set()
            assert (one.answer().status, two.answer().status) == (200, 200)


def test_a_refusal_for_a_full_queue_takes_a_moment_and_keeps_its_place(start, gate, model):
    """Who asks again at once must not take the time of those that are answered."""
    with start(slow=True, max_queue_rows=1) as server:
        event, scored = gate(server)
        body = body_of(model.rows(1))
        with server.wire() as one, server.wire() as two, server.wire() as three:
            one.send(request(body))
            while not scored:
                threading.Event().wait(0.01)
            two.send(request(body))
            server.wait_for_metric(1, "labelwright_queued_rows", model="tiny", method="bce")
            begun = time.perf_counter()
            three.send(request(body), request(b"", path="/healthz", method="GET"))
            assert three.answer().status == 429
            assert time.perf_counter() - begun >= BUSY_SECONDS
            assert three.answer().status == 200
            # A body that comes in pieces meanwhile is let go of, and the connection is as before.
            whole = request(body)
            three.send(whole[:-5])
            threading.Event().wait(BUSY_SECONDS / 2)
            three.send(whole[-5:])
            assert three.answer().status == 429
            event.set()
            assert (one.answer().status, two.answer().status) == (200, 200)
            three.send(whole)
            assert three.answer().status == 200


def test_a_client_may_hang_up_before_its_refusal(start, gate, model):
    with start(slow=True, max_queue_rows=1) as server:
        event, scored = gate(server)
        body = body_of(model.rows(1))
        with server.wire() as one, server.wire() as two:
            one.send(request(body))
            while not scored:
                threading.Event().wait(0.01)
            two.send(request(body))
            server.wait_for_metric(1, "labelwright_queued_rows", model="tiny", method="bce")
            with server.wire() as three:
                three.send(request(body))
                server.wait_for_metric(3, "labelwright_in_flight_requests")
            server.wait_for_metric(2, "labelwright_in_flight_requests")
            event.set()
            assert (one.answer().status, two.answer().status) == (200, 200)
        server.wait_for_metric(0, "labelwright_in_flight_requests")


def test_time_that_runs_out_in_the_queue_is_a_504(start, gate, model):
    with start(slow=True) as server:
        event, scored = gate(server)
        with server.wire() as one, server.wire() as two:
            one.send(request(body_of(model.rows(1))))
            while not scored:
                threading.Event().wait(0.01)
            two.send(request(body_of(model.rows(1)), "x-timeout-ms: 1"))
            server.wait_for_metric(1, "labelwright_queued_rows", model="tiny", method="bce")
            threading.Event().wait(0.01)
            event.set()
            assert one.answer().status == 200
            assert two.answer().json()["error"]["type"] == "deadline_passed"


@pytest.mark.parametrize("before", [0, 1], ids=["first", "like the one before"])
def test_a_body_that_stops_arriving_is_given_up(server, model, monkeypatch, before):
    monkeypatch.setattr("serve.fastpath.BODY_SECONDS", 0.05)
    whole = request(body_of(model.rows(1)))
    with server.wire() as wire:
        for _ in range(before):
            wire.send(whole)
            assert wire.answer().status == 200
        wire.send(whole[:-5])
        answer = wire.answer()
        assert (answer.status, answer.json()["error"]["type"]) == (408, "body_timeout")
    server.wait_for_metric(0, "labelwright_in_flight_requests")


@pytest.mark.parametrize("before", [0, 1], ids=["first", "like the one before"])
def test_a_client_that_hangs_up_while_sending_is_counted(server, model, before):
    whole = request(body_of(model.rows(1)))
    with server.wire() as wire:
        for _ in range(before):
            wire.send(whole)
            assert wire.answer().status == 200
        wire.send(whole[:-5])
        server.wait_for_metric(1, "labelwright_in_flight_requests")
    server.wait_for_metric(1, "labelwright_rejections_total", reason="client_gone")
    server.wait_for_metric(0, "labelwright_in_flight_requests")


@pytest.mark.parametrize("half", [False, True], ids=["closed", "half-closed"])
def test_rows_of_a_client_that_hung_up_are_not_scored(start, gate, model, half):
    with start(slow=True) as server:
        event, scored = gate(server)
        with server.wire() as one, server.wire() as two:
            one.send(request(body_of(model.rows(1))))
            while not scored:
                threading.Event().wait(0.01)
            two.send(request(body_of(model.rows(2))))
            server.wait_for_metric(2, "labelwright_queued_rows", model="tiny", method="bce")
            if half:
                two.socket.shutdown(socket.SHUT_WR)
                assert two.is_closed()
            else:
                two.close()
                threading.Event().wait(0.1)
            event.set()
            assert one.answer().status == 200
        server.wait_for_metric(1, "labelwright_rejections_total", reason="client_gone")
        server.wait_for_metric(0, "labelwright_in_flight_requests")
        assert scored == [1]


def test_a_client_that_does_not_read_is_not_answered_any_further(start, model):
    """It gets what the sockets hold and no more, until it reads; others are served meanwhile."""
    with start() as server, server.wire() as wire, server.wire() as other:
        rows = model.rows(400)
        body = body_of(rows, top_k=8)
        count = 200
        sender = threading.Thread(target=wire.send, args=(request(body) * count,))
        sender.start()
        answered = -1
        while answered != (answered := _answered(server)):
            other.send(request(b"", path="/healthz", method="GET"))
            assert other.answer().status == 200
            threading.Event().wait(0.3)
        assert 0 < answered < count
        assert {wire.answer().status for _ in range(count)} == {200}
        sender.join()


def _answered(server):
    labels = {"model": "tiny", "method": "bce", "status": "200"}
    return server.metric("labelwright_requests_total", **labels) or 0


def test_an_idle_connection_is_closed(serve_app, bundle_path, model, http):
    app = serve_app(bundle_path).app
    settings = Settings(bundles=(bundle_path,), http=http)
    with live(app, settings, timeout_keep_alive=1) as server, server.wire() as wire:
        for _ in range(3):
            wire.send(request(body_of(model.rows(1))))
            assert wire.answer().status == 200
            threading.Event().wait(0.5)
        assert wire.is_closed()


def test_gzip_arrays_and_their_options(server, model):
    rows = np.array(model.rows(3), dtype=np.float32)
    wanted = expected(model, rows.tolist(), 2)
    npy = io.BytesIO()
    np.save(npy, rows)
    headers = {"content-type": "application/octet-stream"}
    bodies = [
        (rows.tobytes(), headers, "?top_k=2"),
        (npy.getvalue(), {"content-type": "application/x-npy"}, "?model=tiny&top_k=2"),
        (gzip.compress(rows.tobytes()), {**headers, "content-encoding": "gzip"}, "?top_k=2"),
        (gzip.compress(body_of(rows.tolist(), top_k=2)), {"content-encoding": "gzip"}, ""),
    ]
    for content, headers, query in bodies:
        answer = httpx.post(f"{server.url}/predict{query}", content=content, headers=headers)
        assert answer.status_code == 200, answer.text
        assert labels_of(answer) == wanted


def test_the_client_s_arrays_and_lists_get_the_same_answers(server, model):
    rows = model.rows(3)
    with Client(server.url) as client:
        for options in ({}, {"top_k": 2}, {"threshold": "tuned", "model": "tiny"}):
            listed = client.predict(rows, **options)
            packed = client.predict(np.array(rows), **options)
            assert [p.labels for p in packed] == [p.labels for p in listed]
            assert [p.scores for p in packed] == [p.scores for p in listed]


def test_both_front_ends_count_alike(serve_app, bundle_path, model):
    counts = {}
    for http in ("protocol", "asgi"):
        app = serve_app(bundle_path).app
        with live(app, Settings(bundles=(bundle_path,), http=http)) as server:
            with server.wire() as wire:
                for body in (body_of(model.rows(2)), b"{", body_of([[1]]), body_of(model.rows(1))):
                    wire.send(request(body))
                    wire.answer()
            samples = [
                sample
                for family in server.service.telemetry.registry.collect()
                for sample in family.samples
            ]
            counts[http] = {
                (sample.name, *sorted(sample.labels.items())): sample.value
                for sample in samples
                if not sample.name.endswith(("_sum", "_bucket", "_seconds", "_bytes"))
            }
    assert counts["protocol"] == counts["asgi"]
