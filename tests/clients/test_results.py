"""Comparisons and speeds, results as frames, and the bar on stderr."""

from __future__ import annotations

import io
import sys

import pytest

from labelwright_client import (
    BadAnswer,
    DeadlineExceeded,
    InvalidArgument,
    InvalidInput,
    ModelSpeed,
    QuantilesMs,
    ServerBusy,
    ServerFailed,
)
from labelwright_client._progress import Bar, reporting


def test_compare_sends_the_rows_once_and_returns_an_answer_for_each_model(server, connect):
    answers = connect(server.url).compare(
        [[1.0], [2.0]], models=("a", "b"), top_k=2, threshold="tuned", request_id="mine"
    )
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("POST", "/compare")
    assert seen.body == {
        "inputs": [[1.0], [2.0]], "models": ["a", "b"], "top_k": 2, "threshold": "tuned",
    }  # fmt: skip
    assert len(answers) == 2
    assert answers.request_id == "mine" == seen.headers["x-request-id"]
    assert [p.labels for p in answers[0].predictions] == [("label-0",), ("label-1",)]
    assert (answers[1].milliseconds, answers[1].error) == (1.0, None)
    assert answers[:1] == (answers[0],)
    assert server.seen[0].headers["content-type"] == "application/json"


def test_compare_asks_all_models_unless_told(server, connect):
    assert len(connect(server.url).compare([[1.0]])) == 1
    assert server.seen[0].body == {"inputs": [[1.0]]}


def test_models_of_a_comparison_are_a_list(server, connect):
    with pytest.raises(InvalidArgument, match="expected a list of names"):
        connect(server.url).compare([[1.0]], models="demo")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(422, InvalidInput), (429, ServerBusy), (500, ServerFailed), (504, DeadlineExceeded)],
)
def test_an_error_inside_a_comparison_is_returned_and_not_raised(server, connect, status, kind):
    problem = {"type": "t", "message": "words"}
    server.then(
        200, {"answers": [{"status": status, "answer": {"error": problem}, "milliseconds": 2}]}
    )
    (answer,) = connect(server.url).compare([[1.0]], request_id="mine")
    assert type(answer.error) is kind
    assert (answer.error.message, answer.error.status) == ("words", status)
    assert answer.error.request_id == "mine"
    assert answer.predictions is None


def test_speeds_are_told(server, connect):
    client = connect(server.url)
    speeds = client.speeds()
    assert speeds.baseline == "delicious-seal"
    assert speeds.models == (
        ModelSpeed(
            name="delicious-seal", version="0123456789ab", method="seal", dataset="delicious",
            requests=3, rows=12, rows_per_second=1000.0, ratio=1.0,
            latency_ms=QuantilesMs(0.5, 1.0, None),
        ),
    )  # fmt: skip
    client.speeds(baseline="a b")
    assert [seen.path for seen in server.seen] == ["/compare", "/compare?baseline=a+b"]


def test_a_speed_that_is_no_number_is_a_bad_answer(server, connect):
    server.then(200, {"baseline": "a", "models": [{"latency_ms": {"p50": "fast"}}]})
    with pytest.raises(BadAnswer, match="`name` is missing"):
        connect(server.url).speeds()
    model = dict.fromkeys(("name", "version", "method", "dataset"), "x")
    model |= {"requests": 1, "rows": 1, "latency_ms": {"p50": "fast"}}
    server.then(200, {"baseline": "a", "models": [model]})
    with pytest.raises(BadAnswer, match="`p50` holds something else than a number"):
        connect(server.url).speeds()


def test_results_become_frames(server, connect):
    client = connect(server.url)
    frame = client.predict([[1.0], [2.0]]).to_frame()
    assert frame.to_dict("list") == {
        "row": [0, 1], "label": ["label-0", "label-1"], "score": [1.0, 0.5],
    }  # fmt: skip
    frame = client.embed([[1.0], [2.0]]).to_frame()
    assert frame.to_numpy().tolist() == [[0.0, 0.5], [1.0, 0.5]]
    assert list(frame.columns) == [0, 1]
    frame = client.speeds().to_frame()
    assert frame.loc[0, ["name", "rows", "p95"]].tolist() == ["delicious-seal", 12, 1.0]
    assert "latency_ms" not in frame


def test_a_comparison_becomes_one_frame_without_the_models_that_failed(
    server, connect, make_predict_answer
):
    failed = {"error": {"type": "t", "message": "words"}}
    server.then(
        200,
        {
            "answers": [
                {"status": 422, "answer": failed, "milliseconds": 2},
                {"status": 200, "answer": make_predict_answer(2), "milliseconds": 3},
            ]
        },
    )
    frame = connect(server.url).compare([[1.0], [2.0]]).to_frame()
    assert frame.to_dict("list") == {
        "model": ["delicious-seal"] * 2, "milliseconds": [3.0] * 2, "row": [0, 1],
        "label": ["label-0", "label-1"], "score": [1.0, 0.5],
    }  # fmt: skip


def test_a_frame_without_pandas_is_one_sentence(server, connect, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"^to_frame\(\) needs pandas: pip install pandas$"):
        connect(server.url).predict([[1.0]]).to_frame()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_is_drawn_over_itself_now_and_then_and_left_on_a_line(clock):
    screen = Terminal()
    bar = Bar(screen, clock)
    bar(0, 200)
    assert screen.getvalue() == "\r0/200 rows [" + "-" * 30 + "]   0 %\x1b[K"
    clock.sleep(0.05)
    bar(50, 200)  # too soon
    assert "50" not in screen.getvalue()
    clock.sleep(0.95)
    bar(100, 200)
    assert screen.getvalue().endswith(
        f"\r100/200 rows [{'#' * 15}{'-' * 15}]  50 %  100 rows/s\x1b[K"
    )
    bar(200, 200)
    bar.finish()
    assert screen.getvalue().endswith(f"\r200/200 rows [{'#' * 30}] 100 %  200 rows/s\x1b[K\n")


def test_where_nobody_watches_the_bar_is_one_line_at_the_end(clock):
    log = io.StringIO()
    bar = Bar(log, clock)
    bar.finish()
    assert log.getvalue() == ""
    clock.sleep(2.0)
    bar(10, None)
    assert log.getvalue() == ""
    bar.finish()
    assert log.getvalue() == "10 rows  5 rows/s\n"


def test_progress_goes_to_stderr_to_a_function_or_nowhere(capsys):
    with reporting(True) as report:
        report(3, 3)
    assert "3/3 rows" in capsys.readouterr().err
    with reporting(False) as report:
        report(3, 3)
    assert capsys.readouterr() == ("", "")
    seen = []
    with reporting(lambda *numbers: seen.append(numbers)) as report:
        report(3, None)
    assert seen == [(3, None)]
