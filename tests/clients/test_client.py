"""Both clients against a real socket: each test that takes `connect` runs once for each of them."""

from __future__ import annotations

import asyncio
import io
import socket
from concurrent.futures import ThreadPoolExecutor
from random import SystemRandom

import httpx
import numpy as np
import pytest
import scipy.sparse as sp

from labelwright_client import (
    AsyncClient,
    BadAnswer,
    Client,
    DeadlineExceeded,
    InputSpec,
    InvalidArgument,
    InvalidInput,
    LatencyMs,
    ModelId,
    Prediction,
    RequestTimedOut,
    ServerBusy,
    ServerFailed,
    ServerUnreachable,
    StatusError,
    Thresholds,
    __version__,
)

ERROR = {"error": {"type": "some_type", "message": "some words", "request_id": "from-server"}}


class Fixed(SystemRandom):
    """Dice that fall as told, if they may: `uniform` asks for an interval that holds the value."""

    def __init__(self, value: float) -> None:
        self.value = value

    def uniform(self, low: float, high: float) -> float:
        assert low <= self.value <= high
        return self.value


@pytest.fixture
def closed_port() -> str:
    """An address that refuses connections: the port was free a moment ago, and nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


def test_predictions_are_a_sequence_with_their_circumstances(server, connect):
    predictions = connect(server.url).predict([[1, 2], [3, 4], [5, 6]])
    assert len(predictions) == 3
    assert predictions[0] == Prediction(("label-0",), (1.0,))
    assert [p.labels[0] for p in predictions] == ["label-0", "label-1", "label-2"]
    assert predictions[1:] == (predictions[1], predictions[2])
    assert predictions[-1] in predictions
    assert predictions.model == ModelId("delicious-seal", "0123456789ab", "seal")
    assert predictions.latency_ms == LatencyMs(0.1, 0.3, 1.0)
    assert predictions.request_id == server.seen[0].headers["x-request-id"]


def test_what_goes_over_the_wire_without_options(server, connect):
    connect(server.url).predict([[1, 2.5]])
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("POST", "/predict")
    assert seen.body == {"inputs": [[1.0, 2.5]]}
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["user-agent"] == f"labelwright-client/{__version__}"


@pytest.mark.parametrize(
    ("rows", "inputs"),
    [
        ([np.array([1, 2])], [[1.0, 2.0]]),
        (sp.csr_array(np.array([[0.0, 2.0], [0.0, 0.0]])), [{"1": 2.0}, {}]),
        ([{3: 1.0}], [{"3": 1.0}]),
        (["zwölf 十二"], ["zwölf 十二"]),
        (np.array(["one", "two"]), ["one", "two"]),
    ],
)
def test_every_kind_of_rows_reaches_the_server(server, connect, rows, inputs):
    connect(server.url).predict(rows)
    assert server.seen[0].body == {"inputs": inputs}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", np.int8, bool])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_numbers_go_as_npy_files(server, connect, dtype, order):
    rows = np.array([[0.5, 1.5], [2.5, -1], [0, 3]]).astype(dtype, order=order)
    answer = connect(server.url).predict(rows, top_k=3, threshold="tuned", model="a b&c")
    (seen,) = server.seen
    assert seen.path == "/predict?top_k=3&threshold=tuned&model=a+b%26c"
    assert seen.headers["content-type"] == "application/x-npy"
    read = np.load(io.BytesIO(seen.body), allow_pickle=False)
    assert read.dtype == "<f4"
    assert read.tolist() == rows.tolist()
    assert len(answer) == 3
    connect(server.url).predict(rows)
    assert server.seen[1].path == "/predict"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_arrays_with_what_is_no_number_are_refused_by_row(server, connect, bad):
    with pytest.raises(InvalidArgument, match="row 1 holds NaN or infinity"):
        connect(server.url).predict(np.array([[0.5, 1.5], [0.5, bad]]))
    assert server.seen == []


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"top_k": np.int64(5)}, {"top_k": 5}),
        ({"threshold": np.float32(0.5)}, {"threshold": 0.5}),
        ({"threshold": 0}, {"threshold": 0.0}),
        ({"threshold": "tuned"}, {"threshold": "tuned"}),
        ({"threshold": "per-label", "model": "m"}, {"threshold": "per-label", "model": "m"}),
    ],
)
def test_options_are_sent_when_given(server, connect, options, sent):
    connect(server.url).predict([[1.0]], **options)
    assert server.seen[0].body == {"inputs": [[1.0]]} | sent


def test_embeddings_are_a_sequence_with_their_circumstances(server, connect):
    embeddings = connect(server.url).embed(["one", "two"], model="m")
    assert len(embeddings) == 2
    assert embeddings[1] == (1.0, 0.5)
    assert embeddings[:1] == ((0.0, 0.5),)
    assert list(embeddings) == [(0.0, 0.5), (1.0, 0.5)]
    assert embeddings.model == ModelId("delicious-seal", "0123456789ab", "seal")
    assert embeddings.latency_ms == LatencyMs(0.1, 0.3, 1.0)
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("POST", "/embed")
    assert seen.body == {"inputs": ["one", "two"], "model": "m"}
    assert embeddings.request_id == seen.headers["x-request-id"]


@pytest.mark.parametrize(
    ("vectors", "words"),
    [([[1.0]], "1 embeddings for 2 rows"), ([1.0, 2.0], "else than vectors"),
     ([["a"], ["b"]], "else than a number"), (None, "is not of type list")],
)  # fmt: skip
def test_embeddings_of_another_shape_are_a_bad_answer(server, connect, vectors, words):
    server.then(200, {"embeddings": vectors})
    with pytest.raises(BadAnswer, match=words):
        connect(server.url).embed([[1.0], [2.0]])


def test_bad_rows_never_reach_the_server(server, connect):
    with pytest.raises(InvalidArgument):
        connect(server.url).predict([1.0, 2.0])
    assert server.seen == []


def test_models_are_described(server, connect, model_answer):
    client = connect(server.url)
    (listed,) = client.models()
    assert client.model("delicious-seal") == listed
    assert server.seen[1].path == "/models/delicious-seal"
    assert listed.input == InputSpec("features", 3, ("a", "b", "c"))
    assert listed.thresholds == Thresholds(0.25)
    assert listed.test_scores == {"example_f1": 0.37, "map": 1.0}
    for key in ("name", "version", "method", "task", "dataset", "label_count"):
        assert getattr(listed, key) == model_answer[key]


def test_a_model_of_texts_has_no_width_and_new_fields_are_ignored(server, connect, model_answer):
    model_answer |= {"input": {"kind": "text", "width": None}, "thresholds": {}, "later": 1}
    server.then(200, model_answer)
    model = connect(server.url).model("texts")
    assert model.input == InputSpec("text", None, None)
    assert model.thresholds == Thresholds(None)


def test_a_model_name_stays_one_segment_of_the_path_below_the_prefix_of_the_address(
    server, connect
):
    connect(f"{server.url}/prefix/").model("a/b c?d")
    assert server.seen[0].path == "/prefix/models/a%2Fb%20c%3Fd"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_leave_the_path_is_refused(server, connect, name):
    with pytest.raises(InvalidArgument, match=r"expected the name of a model"):
        connect(server.url).model(name)
    assert server.seen == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidInput),
        (404, InvalidInput),
        (413, InvalidInput),
        (422, InvalidInput),
        (429, ServerBusy),
        (500, ServerFailed),
        (502, ServerFailed),
        (503, ServerBusy),
        (504, DeadlineExceeded),
    ],
)
def test_each_status_has_its_class_and_carries_the_words_of_the_server(
    server, connect, status, kind
):
    server.then(status, ERROR)
    with pytest.raises(StatusError) as caught:
        connect(server.url, max_retries=0).predict([[1.0]])
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.type, error.message) == (status, "some_type", "some words")
    assert error.request_id == "from-server"
    assert str(error) == f"{status} some_type: some words (request from-server)"


def test_a_server_side_deadline_is_a_timeout_too(server, connect):
    server.then(504, ERROR)
    with pytest.raises(RequestTimedOut):
        connect(server.url).predict([[1.0]])
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[]", b'{"error": "no"}', b'{"error": {"type": 1}}']
)
def test_an_error_page_of_a_proxy_is_classed_by_its_status(server, connect, body):
    server.then(502, body, x_request_id="from-header")
    with pytest.raises(ServerFailed, match="502 unknown: Bad Gateway from http") as caught:
        connect(server.url).predict([[1.0]])
    assert caught.value.request_id == "from-header"


def test_an_error_without_any_id_carries_the_one_that_was_sent(server, connect):
    server.then(422, {"error": {"type": "t", "message": "m", "request_id": None}})
    with pytest.raises(InvalidInput) as caught:
        connect(server.url).predict([[1.0]])
    assert caught.value.request_id == server.seen[0].headers["x-request-id"]


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_when_it_said(server, connect, clock, status):
    server.then(status, ERROR, retry_after="3")
    server.then(status, ERROR, retry_after="0.5")
    assert len(connect(server.url).predict([[1.0]])) == 1
    assert clock.sleeps == [3.0, 0.5]
    assert len({seen.headers["x-request-id"] for seen in server.seen}) == 1
    assert len({seen.peer for seen in server.seen}) == 1, "a retry leaked its connection"


def test_a_server_that_stays_busy_is_given_up_with_its_last_word(server, connect, clock):
    for seconds in ("1", "2", "7"):
        server.then(503, ERROR, retry_after=seconds)
    with pytest.raises(ServerBusy) as caught:
        connect(server.url).predict([[1.0]])
    assert caught.value.retry_after == 7.0
    assert clock.sleeps == [1.0, 2.0]


def test_an_unreasonable_retry_after_is_reported_but_not_waited_for(server, connect, clock):
    server.then(503, ERROR, retry_after="3600")
    server.then(503, ERROR, retry_after="3600")
    with pytest.raises(ServerBusy) as caught:
        connect(server.url, max_retries=1, rng=Fixed(0.2)).predict([[1.0]])
    assert caught.value.retry_after == 3600.0
    assert clock.sleeps == [0.2]


@pytest.mark.parametrize("status", [400, 404, 413, 422, 500, 502, 504])
def test_other_statuses_are_not_repeated(server, connect, clock, status):
    server.then(status, ERROR, retry_after="1")
    with pytest.raises(StatusError):
        connect(server.url).predict([[1.0]])
    assert len(server.seen) == 1
    assert clock.sleeps == []


def test_an_absent_server_is_tried_again_and_then_unreachable(connect, clock, closed_port):
    with pytest.raises(ServerUnreachable, match="is the server running") as caught:
        connect(closed_port).predict([[1.0]])
    assert len(clock.sleeps) == 2
    assert len(caught.value.request_id) == 32


def test_a_connection_that_broke_is_made_again(connect, clock, make_predict_answer):
    failures = [httpx.ReadError("reset"), httpx.RemoteProtocolError("server disconnected")]

    def handler(request: httpx.Request) -> httpx.Response:
        if failures:
            raise failures.pop()
        return httpx.Response(200, json=make_predict_answer(1))

    predictions = connect(transport=httpx.MockTransport(handler)).predict([[1.0]])
    assert predictions.request_id == "from-body"
    assert len(clock.sleeps) == 2


def test_a_server_that_does_not_answer_is_a_timeout_and_not_asked_again(server, connect, clock):
    server.holding = True
    with pytest.raises(RequestTimedOut, match=r"to POST /predict within 0.05 s"):
        connect(server.url, timeout=0.05).predict([[1.0]])
    assert clock.sleeps == []
    assert len(server.seen) == 1


def without(answer, *path):
    """The answer, less the field at the end of the path."""
    *above, last = path
    inner = answer
    for key in above:
        inner = inner[key]
    del inner[last]
    return answer


@pytest.mark.parametrize(
    "damage",
    [
        lambda a: without(a, "predictions"),
        lambda a: without(a, "model"),
        lambda a: without(a, "model", "method"),
        lambda a: without(a, "latency_ms", "queue"),
        lambda a: without(a, "request_id"),
        lambda a: without(a, "predictions", 0, "scores"),
        lambda a: a | {"predictions": []},
        lambda a: a | {"predictions": [None]},
        lambda a: a | {"predictions": {}},
        lambda a: a | {"predictions": [{"labels": ["a", "b"], "scores": [0.5]}]},
        lambda a: a | {"predictions": [{"labels": [1], "scores": [0.5]}]},
        lambda a: a | {"predictions": [{"labels": ["a"], "scores": ["0.5"]}]},
        lambda a: a | {"predictions": [{"labels": ["a"], "scores": [None]}]},
        lambda a: a | {"predictions": [{"labels": ["a"], "scores": [True]}]},
        lambda a: [a],
        lambda a: b"<html>not ours</html>",
        lambda a: b"\xff\xfe\xfd",
        lambda a: b"[" * 100_000,
        lambda a: b"",
    ],
)
def test_a_malformed_prediction_is_a_bad_answer(server, connect, make_predict_answer, damage):
    server.then(200, damage(make_predict_answer(1)), x_request_id="from-header")
    with pytest.raises(BadAnswer, match="as a Labelwright server does") as caught:
        connect(server.url).predict([[1.0]])
    assert caught.value.request_id == "from-header"
    assert len(server.seen) == 1


@pytest.mark.parametrize(("status", "kind"), [(200, BadAnswer), (400, InvalidInput)])
def test_a_password_in_the_address_stays_out_of_messages(server, connect, status, kind):
    server.then(status, b"<html>")
    with pytest.raises(kind, match=server.url) as caught:
        connect(server.url.replace("//", "//user:secret@")).models()
    assert "secret" not in str(caught.value)
    assert server.seen[0].headers["authorization"].startswith("Basic ")


@pytest.mark.parametrize("status", [204, 206, 302])
def test_a_status_that_no_labelwright_server_sends_is_a_bad_answer(server, connect, status):
    server.then(status, location="/elsewhere")
    with pytest.raises(BadAnswer, match=f"status {status}"):
        connect(server.url).models()
    assert len(server.seen) == 1


def test_a_body_that_cannot_be_decompressed_is_a_bad_answer(server, connect):
    server.then(200, b"this is no gzip", content_encoding="gzip")
    with pytest.raises(BadAnswer, match="cannot be decoded"):
        connect(server.url).models()


def test_a_model_list_with_a_damaged_entry_is_a_bad_answer(server, connect, model_answer):
    server.then(200, {"models": [without(model_answer, "label_count")]})
    with pytest.raises(BadAnswer, match="`label_count` is missing"):
        connect(server.url).models()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_server_that_cannot_answer_yet_is_not_ready_and_asked_once(server, connect, status):
    server.then(status, {"status": "loading"})
    client = connect(server.url)
    assert client.is_ready() is False
    assert client.is_ready() is True
    assert [seen.path for seen in server.seen] == ["/readyz", "/readyz"]


def test_an_absent_or_silent_server_is_not_ready(server, connect, clock, closed_port):
    server.holding = True
    assert connect(closed_port).is_ready() is False
    assert connect(server.url, timeout=0.05).is_ready() is False
    assert clock.sleeps == []


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, b"<html>", InvalidInput),
        (200, b"<html>", BadAnswer),
        (200, {"status": "no"}, BadAnswer),
    ],
)
def test_asking_a_stranger_for_readiness_is_an_error_at_once(
    server, connect, clock, status, body, kind
):
    server.then(status, body)
    with pytest.raises(kind):
        connect(server.url).wait_until_ready()
    assert clock.sleeps == []


def test_waiting_ends_as_soon_as_the_server_is_ready(server, connect, clock):
    server.then(503, {"status": "loading"})
    server.then(503, {"status": "loading"})
    connect(server.url).wait_until_ready()
    assert clock.sleeps == [0.25, 0.25]


def test_waiting_ends_at_the_deadline(connect, clock, closed_port):
    with pytest.raises(RequestTimedOut, match=r"not ready within 0.6 s, .* cannot reach"):
        connect(closed_port).wait_until_ready(timeout=0.6)
    assert sum(clock.sleeps) == pytest.approx(0.6)


def test_the_address_comes_from_the_environment(server, connect, monkeypatch):
    monkeypatch.setenv("LABELWRIGHT_URL", server.url)
    assert connect().is_ready()


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"max_retries": -1}, {"base_url": "localhost"}]
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_bad_options_are_refused_when_the_client_is_made(kind, options):
    with pytest.raises(InvalidArgument):
        kind(**options)


def test_eight_threads_share_a_client_and_get_their_own_answers(server):
    with Client(server.url) as client, ThreadPoolExecutor(8) as pool:
        sizes = [1 + number % 7 for number in range(80)]
        answers = list(pool.map(lambda size: client.predict([[1.0]] * size), sizes))
    assert [len(answer) for answer in answers] == sizes
    assert len({answer.request_id for answer in answers}) == 80
    assert len({seen.peer for seen in server.seen}) <= 8, "connections are not reused"


def test_eight_tasks_share_an_async_client(server):
    async def ask() -> list[int]:
        async with AsyncClient(server.url) as client:
            calls = (client.predict([[1.0]] * size) for size in range(1, 9))
            return [len(answer) for answer in await asyncio.gather(*calls)]

    assert asyncio.run(ask()) == list(range(1, 9))


def test_leaving_the_block_closes_the_client(server):
    with Client(server.url) as client:
        assert client.is_ready()
    with pytest.raises(RuntimeError, match="closed"):
        client.is_ready()


def test_a_key_is_shown_with_every_request(connect, server, monkeypatch):
    monkeypatch.setenv("LABELWRIGHT_API_KEY", "of-the-environment")
    connect(server.url).models()
    connect(server.url, api_key="given").is_ready()
    monkeypatch.delenv("LABELWRIGHT_API_KEY")
    connect(server.url).models()
    shown = [seen.headers.get("authorization") for seen in server.seen]
    assert shown == ["Bearer of-the-environment", "Bearer given", None]


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "ключ"])
def test_a_key_that_cannot_be_sent_is_refused(connect, server, key):
    with pytest.raises(InvalidArgument, match="api_key must be visible ASCII"):
        connect(server.url, api_key=key)
