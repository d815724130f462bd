"""Words in, spans out: a live server with a model of words, and answers that are wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from labelwright_client import BadAnswer, Client, InvalidInput, Span
from tests.serve.test_words import ROWS, expected, write

ROOT = Path(__file__).parents[2]
ANSWER = {
    "model": {"name": "roles", "version": "1", "method": "ce"},
    "latency_ms": {"queue": 0.1, "inference": 0.2, "total": 0.3},
    "request_id": "abc",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    bundle = write(tmp_path_factory.mktemp("roles") / "roles.bundle")
    with subprocess.Popen(
        [sys.executable, "-m", "serve", str(bundle), "--port", "0", "--workers", "1"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        try:
            yield server.stdout.readline().split()[-1]
        finally:
            server.terminate()
            server.communicate(timeout=30)


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
        pytest.raises(BadAnswer, match="spans of 0 rows for 1 rows"),
    ):
        client.spans([{"text": "She laughed."}])
