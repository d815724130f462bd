"""Inputs of any length: cut, asked about a few at a time, answered in their order."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing

import httpx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from labelwright_client import AsyncClient, Client, InvalidArgument, InvalidInput
from labelwright_client._stream import MOST_ARRAY_BYTES, cut

ERROR = {"error": {"type": "invalid_input", "message": "row 1 is odd", "request_id": "r"}}


def echo(request: httpx.Request, make_predict_answer) -> httpx.Response:
    """The label of a row of texts is the text itself."""
    texts = httpx.Response(200, content=request.content).json()["inputs"]
    answer = make_predict_answer(len(texts))
    for prediction, text in zip(answer["predictions"], texts, strict=True):
        prediction["labels"] = [text]
    return httpx.Response(200, json=answer)


@pytest.mark.parametrize(
    ("rows", "total"),
    [
        ([[float(i), 1.0] for i in range(7)], 7),
        (np.ones((7, 2)), 7),
        (sp.coo_array(np.ones((7, 2))), 7),
        (pd.DataFrame({"a": np.ones(7), "b": np.ones(7)}, index=range(10, 17)), 7),
        (pd.Series(["text"] * 7, index=range(10, 17)), 7),
        (lambda: ([1.0, float(i)] for i in range(7)), None),
        (lambda: iter("abcdefg"), None),
    ],
    ids=["list", "array", "sparse", "frame", "series", "generator", "texts"],
)
def test_everything_that_holds_rows_is_cut_and_counted(server, connect, rows, total):
    seen = []
    client, rows = connect(server.url), rows() if callable(rows) else rows
    answers = list(
        client.predict_many(
            rows,
            chunk_rows=3,
            concurrency=1,
            top_k=1,
            model="m",
            progress=lambda *n: seen.append(n),
        )
    )
    assert [answer.labels[0] for answer in answers] == [
        *("label-0", "label-1", "label-2"),
        *("label-0", "label-1", "label-2"),
        "label-0",
    ]
    assert seen == [(3, total), (6, total), (7, total)]
    assert len({request.headers["x-request-id"] for request in server.seen}) == 3


def test_embeddings_stream_too(server, connect):
    answers = list(connect(server.url).embed_many(["a", "b", "c"], chunk_rows=2, model="m"))
    assert answers == [(0.0, 0.5), (1.0, 0.5), (0.0, 0.5)]
    assert server.seen[0].body["model"] == "m"


@pytest.mark.parametrize(
    "rows", [[], iter([]), np.zeros((0, 3))], ids=["list", "iterator", "array"]
)
def test_no_rows_have_no_answers(server, connect, rows):
    assert list(connect(server.url).predict_many(rows)) == []
    assert server.seen == []


@pytest.mark.parametrize("rows", ["one text", b"bytes", {3: 1.0}, 5.0, None, np.array(5.0)])
def test_one_single_row_is_refused_at_once(server, connect, rows):
    with pytest.raises(InvalidArgument, match="or something that yields them, got"):
        connect(server.url).predict_many(rows)


@pytest.mark.parametrize(
    "options", [{"chunk_rows": 0}, {"chunk_rows": 2.5}, {"concurrency": -1}, {"concurrency": True}]
)
def test_a_bad_pace_is_refused_at_once(server, connect, options):
    with pytest.raises(InvalidArgument, match=rf"{next(iter(options))} is .*: expected a whole"):
        connect(server.url).embed_many([[1.0]], **options)


def test_very_wide_arrays_are_cut_finer_than_asked():
    width = MOST_ARRAY_BYTES // 4 // 10
    wide = np.broadcast_to(np.float32(0), (25, width))
    assert [len(chunk.rows) for chunk in cut(wide, 256).chunks] == [10, 10, 5]
    wider = np.broadcast_to(np.float32(0), (2, 30 * width))
    assert [len(chunk.rows) for chunk in cut(wider, 256).chunks] == [1, 1]


def test_a_request_that_fails_ends_the_stream_with_its_place(server, connect, make_predict_answer):
    server.then(200, make_predict_answer(2))
    server.then(422, ERROR)
    rows = [[float(i)] for i in range(6)]
    with pytest.raises(InvalidInput, match="row 1 is odd") as caught:
        list(connect(server.url).predict_many(rows, chunk_rows=2, concurrency=1))
    assert caught.value.__notes__ == ["in the request that begins with row 2, which it calls row 0"]
    assert caught.value.request_id == "r"


def test_rows_before_a_bad_one_have_been_answered(server, no_tls):
    rows = [[1.0], [2.0], [float("nan")], [4.0]]
    transport = httpx.HTTPTransport(verify=no_tls)
    with Client(server.url, transport=transport) as client:
        answers = client.predict_many(rows, chunk_rows=1, concurrency=4)
        assert len([next(answers), next(answers)]) == 2
        with pytest.raises(InvalidArgument, match="row 0 holds NaN") as caught:
            next(answers)
    assert "begins with row 2" in caught.value.__notes__[0]


def test_answers_keep_the_order_of_the_rows_and_few_requests_are_under_way(make_predict_answer):
    gate, lock = threading.Event(), threading.Lock()
    under_way, most, asked = 0, 0, 0

    def handler(request: httpx.Request) -> httpx.Response:
        nonlocal under_way, most, asked
        with lock:
            under_way, asked = under_way + 1, asked + 1
            most, number = max(most, under_way), asked
            if number == 3:
                gate.set()
        if number <= 3:
            assert gate.wait(30)  # as many as are allowed have to be under way
        with lock:
            under_way -= 1
        return echo(request, make_predict_answer)

    taken = 0

    def rows():
        nonlocal taken
        for i in range(20):
            taken += 1
            yield str(i)

    with Client(transport=httpx.MockTransport(handler)) as client:
        answers = client.predict_many(rows(), chunk_rows=2, concurrency=3)
        first = next(answers)
        assert taken <= 2 * (3 + 1)
        labels = [answer.labels[0] for answer in (first, *answers)]
    assert labels == [str(i) for i in range(20)]
    assert most == 3


def test_async_answers_keep_the_order_of_the_rows(make_predict_answer):
    under_way, most = 0, 0

    async def handler(request: httpx.Request) -> httpx.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(10 - under_way):
            await asyncio.sleep(0)
        under_way -= 1
        return echo(request, make_predict_answer)

    async def main() -> list[str]:
        async with AsyncClient(transport=httpx.MockTransport(handler)) as client:
            rows = (str(i) for i in range(20))
            answers = client.predict_many(rows, chunk_rows=2, concurrency=3)
            return [answer.labels[0] async for answer in answers]

    assert asyncio.run(main()) == [str(i) for i in range(20)]
    assert most == 3


def test_who_stops_early_leaves_nothing_under_way(make_predict_answer):
    asked = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return echo(request, make_predict_answer)

    with Client(transport=httpx.MockTransport(handler)) as client:
        answers = client.predict_many(map(str, range(1000)), chunk_rows=1, concurrency=2)
        next(answers)
        answers.close()
    assert len(asked) <= 3

    async def main() -> int:
        async with AsyncClient(transport=httpx.MockTransport(handler)) as client:
            rows = map(str, range(1000))
            async with aclosing(client.predict_many(rows, chunk_rows=1, concurrency=2)) as answers:
                async for _ in answers:
                    break
            return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1
    assert len(asked) <= 6
