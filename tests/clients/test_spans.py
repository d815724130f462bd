"""Words in, spans out: a live server with a model of words, and answers that are wrong."""

from __future__ import annotations

import httpx
import pytest

from labelwright_client import BadAnswer, Client, InvalidArgument, InvalidInput, Span
from tests.clients.conftest import serving
from tests.serve.test_words import ROWS, expected, write

ANSWER = {
    "model": {"name": "roles", "version": "1", "method": "ce"},
    "latency_ms": {"queue": 0.1, "inference": 0.2, "total": 0.3},
    "request_id": "abc",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    bundle = write(tmp_path_factory.mktemp("roles") / "roles.bundle")
    with serving(bundle) as url:
        yield url


def test_words_become_spans(connect, address):
    spans = connect(address).spans(ROWS, model="roles")
    assert len(spans) == len(ROWS)
    for found, row in zip(spans, ROWS, strict=True):
        assert found == tuple(
            Span(**{**span, "words": tuple(span["words"])}) for span in expected(row)
        )
    assert spans[:1] == (spans[0],)
    assert spans.model.name == "roles"


def test_the_threshold_leaves_spans_out(connect, address):
    assert not any(connect(address).spans(ROWS, threshold=1.0))


def test_a_wrong_row_is_refused_by_the_server(connect, address):
    with pytest.raises(InvalidInput, match="row 0"):
        connect(address).spans([{"tokens": []}])


def test_predict_names_the_method_that_reads_spans():
    answer = {**ANSWER, "predictions": [{"spans": []}]}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
    with (
        Client("http://test", transport=transport) as client,
        pytest.raises(BadAnswer, match=r"answers with spans: ask it by spans\(\)"),
    ):
        client.predict([[1.0]])


def test_an_answer_for_fewer_rows_is_no_answer():
    answer = {**ANSWER, "predictions": []}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
    with (
        Client("http://test", transport=transport) as client,
        pytest.raises(BadAnswer, match="0 predictions for 1 rows"),
    ):
        client.spans([{"text": "She laughed."}])


@pytest.mark.parametrize("rows", ["She laughed.", {"text": "She laughed."}, ["She laughed."]])
def test_rows_of_another_kind_are_refused(rows):
    with Client("http://test") as client, pytest.raises(InvalidArgument, match="a list of rows"):
        client.spans(rows)
