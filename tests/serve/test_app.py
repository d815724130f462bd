from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import httpx
import orjson
import pytest

from serve.app import openapi_text
from serve.errors import TABLE
from train.errors import ConfigError

ROOT = Path(__file__).parents[2]
PER_LABEL = [0.9, 0.1, 0.5, 0.3, 0.7, 0.2, 0.6, 0.4]


def pairs(prediction):
    return list(zip(prediction["labels"], prediction["scores"], strict=True))


def assert_predictions(answer, expected):
    assert answer.status_code == 200, answer.text
    predictions = answer.json()["predictions"]
    assert len(predictions) == len(expected)
    for got, wanted in zip(map(pairs, predictions), expected, strict=True):
        assert [name for name, _ in got] == [name for name, _ in wanted]
        assert [score for _, score in got] == pytest.approx([s for _, s in wanted], abs=1e-6)


def assert_problem(answer, status, kind, sentence):
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"type", "message", "request_id"}
    assert error["type"] == kind
    assert sentence in error["message"]
    assert "\n" not in error["message"]
    assert error["request_id"] == answer.headers["x-request-id"]


def test_dense_rows_get_five_labels_by_default(app, model):
    rows = model.rows(3)
    answer = app.predict({"inputs": rows})
    assert_predictions(answer, [model.expected(row, 5) for row in rows])
    body = answer.json()
    version = body["model"].pop("version")
    assert re.fullmatch("[0-9a-f]{12}", version)
    assert body["model"] == {"name": "tiny", "method": "bce"}
    assert body["request_id"] == answer.headers["x-request-id"]
    latency = body["latency_ms"]
    assert set(latency) == {"queue", "inference", "total"}
    assert all(value >= 0 for value in latency.values())
    assert latency["queue"] + latency["inference"] <= latency["total"] + 0.002  # rounding


def test_sparse_rows_are_the_same_rows(app, model):
    sparse = [{"1": 0.5, "4": -2.0}, {}]
    dense = [[0, 0.5, 0, 0, -2.0, 0], [0.0] * 6]
    expected = [model.expected(row, 2) for row in dense]
    assert_predictions(app.predict({"inputs": sparse, "top_k": 2}), expected)


@pytest.mark.parametrize(
    ("threshold", "limits"),
    [(0.3, 0.3), (0, 0.0), (1, 1.0), ("tuned", 0.45), ("per-label", PER_LABEL)],
)
@pytest.mark.parametrize("top_k", [None, 1, 3, 8])
def test_thresholds_keep_the_labels_that_reach_them(app, model, threshold, limits, top_k):
    rows = model.rows(6, seed=5)
    answer = app.predict({"inputs": rows, "threshold": threshold, "top_k": top_k})
    assert_predictions(answer, [model.expected(row, top_k, limits) for row in rows])


def test_a_score_read_off_an_answer_passes_as_threshold(app, model):
    rows = model.rows(1, seed=7)
    first = app.predict({"inputs": rows, "top_k": 4})
    lowest = first.json()["predictions"][0]["scores"][-1]
    again = app.predict({"inputs": rows, "threshold": lowest})
    assert pairs(again.json()["predictions"][0]) == pairs(first.json()["predictions"][0])


def test_the_default_is_all_labels_of_a_model_with_few(serve_app, other_path, other_model):
    app = serve_app(other_path)
    answer = app.predict({"inputs": [[1, 2, 3]]})
    assert_predictions(answer, [other_model.expected([1, 2, 3], 4)])


@pytest.mark.parametrize("slow", [False, True])
def test_requests_of_one_moment_share_a_batch_and_keep_their_rows(serve_app, model, slow):
    app = serve_app(slow=slow)
    rows = model.rows(20)
    bodies = [
        {"inputs": [row], "top_k": 1 + i % 8, "threshold": "per-label" if i % 3 == 0 else None}
        for i, row in enumerate(rows)
    ]

    async def talk(client):
        return await asyncio.gather(*(client.post("/predict", json=body) for body in bodies))

    for body, answer in zip(bodies, app.run(talk), strict=True):
        limits = PER_LABEL if body["threshold"] else 0.0
        assert_predictions(answer, [model.expected(body["inputs"][0], body["top_k"], limits)])
    labels = {"model": "tiny", "method": "bce"}
    assert app.metric("labelwright_batch_rows_count", **labels) < 20


def test_a_request_larger_than_a_batch_is_answered_whole(serve_app, model):
    app = serve_app(max_batch_rows=2)
    rows = model.rows(9)
    expected = [model.expected(row, 1) for row in rows]
    assert_predictions(app.predict({"inputs": rows, "top_k": 1}), expected)


def test_several_bundles_are_told_apart_by_name(serve_app, bundle_path, other_path, other_model):
    app = serve_app(bundle_path, other_path)
    answer = app.predict({"inputs": [[1, 2, 3]], "model": "other", "top_k": 2})
    assert_predictions(answer, [other_model.expected([1, 2, 3], 2)])
    assert answer.json()["model"]["method"] == "seal"
    unnamed = app.predict({"inputs": [[1, 2, 3]]})
    assert_problem(unnamed, 422, "invalid_input", "one of the loaded models: other, tiny")
    wrong = app.predict({"inputs": [[1, 2, 3]], "model": "othr"})
    assert_problem(wrong, 404, "unknown_model", "no model 'othr' is loaded: did you mean 'other'?")


def test_two_bundles_of_one_name_are_refused(serve_app, bundle_path, write, model, tmp_path):
    twin = write(tmp_path / "twin.bundle", model)
    with pytest.raises(ConfigError, match="are both named 'tiny'"):
        serve_app(bundle_path, twin)


ROW = [0.1] * 6


@pytest.mark.parametrize(
    ("body", "status", "kind", "sentence"),
    [
        (b"", 400, "malformed_body", "the body is empty"),
        (b"  \n", 400, "malformed_body", "the body is empty"),
        (b"{", 400, "malformed_body", "not JSON: unexpected end of data at position 1"),
        (
            b'{"inputs": [[1,]]}',
            400,
            "malformed_body",
            "trailing comma is not allowed at position 14",
        ),
        (b"\xff\xfe{}", 400, "malformed_body", "not JSON"),
        (b"[" * 5000, 400, "malformed_body", "not JSON"),
        (b'{"inputs": [[NaN]]}', 400, "malformed_body", "has NaN at position 13"),
        (b'{"inputs": [[1, Infinity]]}', 400, "malformed_body", "has Infinity at position"),
        (b'{"inputs": [[-Infinity]]}', 400, "malformed_body", "has -Infinity at position"),
        (b"[[1]]", 422, "invalid_input", "must be an object"),
        (b"null", 422, "invalid_input", "got null"),
        (b"{}", 422, "invalid_input", 'no "inputs"'),
        (b'{"inputs": [[0,0,0,0,0,0],[1e999,0,0,0,0,0]]}', 422, "invalid_input", "row 1 holds"),
        (b'{"inputs": [[' + b"9" * 400 + b']], "top_k": 1}', 422, "invalid_input", "row 0 holds"),
        (b'{"inputs": [{"0": 1}, {"0": ' + b"9" * 400 + b"}]}", 422, "invalid_input", "row 1 hold"),
        (b'{"inputs": [{"0": -1e999}]}', 422, "invalid_input", "row 0 holds a number"),
        (b'{"inputs": [[1e999' + b"[" * 5000, 400, "malformed_body", "not JSON"),
        (b'{"a\\ud800": 1}', 400, "malformed_body", "surrogate"),
        (b'{"b": 1e999, "a\\ud800": 1}', 422, "invalid_input", "unknown field 'b'"),
        (b'{"inputs": 1e999, "a\\ud800": 1}', 422, "invalid_input", "'a\\ud800'"),
        (b'{"inputs": [[' + b"9" * 5000 + b"]]}", 400, "malformed_body", "not JSON"),
        ({"inputs": [ROW], "topk": 3}, 422, "invalid_input", "'topk': did you mean 'top_k'?"),
        ({"inputs": []}, 422, "invalid_input", "at least one row"),
        ({"inputs": ROW}, 422, "invalid_input", "wrap it in a list"),
        ({"inputs": [ROW, ROW[1:]]}, 422, "invalid_input", "row 1 must have 6 numbers, got 5"),
        ({"inputs": [ROW, [True, *ROW[1:]]]}, 422, "invalid_input", "row 1 must hold numbers"),
        ({"inputs": ["some text"]}, 422, "invalid_input", "this model takes 6 numbers a row"),
        ({"inputs": [ROW], "top_k": 0}, 422, "invalid_input", "must be 1 to 8"),
        ({"inputs": [ROW], "top_k": -1}, 422, "invalid_input", "got -1"),
        ({"inputs": [ROW], "top_k": 9}, 422, "invalid_input", "must be 1 to 8"),
        ({"inputs": [ROW], "top_k": 2**63}, 422, "invalid_input", "must be 1 to 8"),
        ({"inputs": [ROW], "top_k": 1.0}, 422, "invalid_input", "must be a whole number, got 1.0"),
        ({"inputs": [ROW], "top_k": "5"}, 422, "invalid_input", 'must be a whole number, got "5"'),
        ({"inputs": [ROW], "top_k": True}, 422, "invalid_input", "whole number, got true"),
        ({"inputs": [ROW], "top_k": [5]}, 422, "invalid_input", "whole number, got a list"),
        ({"inputs": [ROW], "threshold": 1.1}, 422, "invalid_input", "from 0 to 1"),
        ({"inputs": [ROW], "threshold": -0.1}, 422, "invalid_input", "got -0.1"),
        ({"inputs": [ROW], "threshold": True}, 422, "invalid_input", "got true"),
        ({"inputs": [ROW], "threshold": "best"}, 422, "invalid_input", '"tuned" or "per-label"'),
        ({"inputs": [ROW], "threshold": {}}, 422, "invalid_input", "got an object"),
        (b'{"inputs": [[0]], "threshold": 1e999}', 422, "invalid_input", "got Infinity"),
        ({"inputs": [ROW], "model": 3}, 422, "invalid_input", '"model" must be a string'),
        ({"inputs": [ROW], "model": "tony"}, 404, "unknown_model", "did you mean 'tiny'?"),
        ({"inputs": [ROW], "model": "x" * 10**5}, 404, "unknown_model", "known: tiny"),
        ({"inputs": [{}] * 5000}, 413, "too_large", "at most 4096 rows"),
    ],
)
def test_bad_requests_get_one_sentence(app, body, status, kind, sentence):
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    answer = app.predict_raw(content)
    assert_problem(answer, status, kind, sentence)
    assert len(answer.json()["error"]["message"]) < 300
    assert app.metric("labelwright_rejections_total", reason=kind) == 1


@pytest.mark.parametrize(
    "declared",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/x-www-form-urlencoded",  # curl, unless told otherwise
        None,
    ],
)
def test_json_may_be_declared_or_not(app, declared):
    headers = {"content-type": declared} if declared else {}
    answer = app.predict_raw(orjson.dumps({"inputs": [ROW]}), headers=headers)
    assert answer.status_code == 200


def test_other_content_types_are_refused(app):
    headers = {"content-type": "text/csv"}
    answer = app.predict_raw(orjson.dumps({"inputs": [ROW]}), headers=headers)
    assert_problem(
        answer, 415, "unsupported_type", "send the header content-type: application/json"
    )


def test_a_time_limit_that_has_passed_is_504(app):
    headers = {"content-type": "application/json", "x-timeout-ms": "1e-6"}
    answer = app.predict({"inputs": [ROW]}, headers=headers)
    assert_problem(answer, 504, "deadline_passed", "the request's time ran out")
    assert app.predict({"inputs": [ROW]}, headers={"x-timeout-ms": "60000"}).status_code == 200


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf", ""])
def test_a_senseless_time_limit_is_refused(app, value):
    answer = app.predict({"inputs": [ROW]}, headers={"x-timeout-ms": value})
    assert_problem(answer, 422, "invalid_input", "x-timeout-ms must be a positive number")


def test_a_full_queue_is_429_with_retry_after(serve_app):
    app = serve_app(max_queue_rows=3, slow=True)

    async def talk(client):
        body = {"inputs": [ROW, ROW]}
        return await asyncio.gather(*(client.post("/predict", json=body) for _ in range(2)))

    first, second = app.run(talk)
    assert first.status_code == 200
    assert_problem(second, 429, "busy", "try again in 1 s")
    assert second.headers["retry-after"] == "1"
    assert app.metric("labelwright_rejections_total", reason="busy") == 1


def test_a_wide_model_gets_a_shorter_queue(serve_app, monkeypatch):
    monkeypatch.setattr("serve.service.MAX_QUEUE_BYTES", 4 * (6 + 8) * 10)
    refused = serve_app().predict({"inputs": [ROW] * 24})
    assert_problem(refused, 413, "too_large", "at most 23 rows")
    all_scores = {"threshold": 0.1}
    assert serve_app().predict({"inputs": [ROW] * 10, **all_scores}).status_code == 200
    refused = serve_app().predict({"inputs": [ROW] * 11, **all_scores})
    assert_problem(refused, 413, "too_large", "would take 616 bytes")


@pytest.mark.parametrize("given", ["a", "x" * 128, 'quote"\\~!'])
def test_a_usable_request_id_is_kept(app, given):
    good = app.predict({"inputs": [ROW]}, headers={"x-request-id": given})
    assert good.json()["request_id"] == good.headers["x-request-id"] == given
    bad = app.predict({"inputs": []}, headers={"x-request-id": given})
    assert bad.json()["error"]["request_id"] == bad.headers["x-request-id"] == given
    assert app.get("/healthz", headers={"x-request-id": given}).headers["x-request-id"] == given
    missing = app.get("/nowhere", headers={"x-request-id": given})
    assert missing.json()["error"]["request_id"] == missing.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 129, "two words", "tab\tbed", "é".encode()])
def test_an_unusable_request_id_is_replaced(app, given):
    answers = [app.predict({"inputs": [ROW]}, headers={"x-request-id": given}) for _ in range(2)]
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == 2
    assert given not in ids


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
def test_a_wrong_method_is_405_with_allow(app, method):
    answer = app.request(method, "/predict")
    assert answer.headers["allow"] == "POST"
    assert answer.status_code == 405
    if method != "HEAD":
        assert_problem(answer, 405, "method_not_allowed", f"/predict does not take {method}")


@pytest.mark.parametrize("path", ["/nowhere", "/predict/", "/models/", "/predict//"])
def test_a_wrong_path_is_404(app, path):
    assert_problem(app.request("POST", path), 404, "not_found", "there is nothing at")


def test_models_are_described(serve_app, bundle_path, other_path, model):
    app = serve_app(bundle_path, other_path)
    listed = app.get("/models").json()["models"]
    assert [(entry["name"], entry["input"]["width"], entry["label_count"]) for entry in listed] == [
        ("tiny", 6, 8),
        ("other", 3, 4),
    ]
    detail = app.get("/models/tiny").json()
    assert detail["labels"] == model.names
    assert detail["thresholds"] == {"tuned": 0.45, "per_label": PER_LABEL}
    assert detail["input"] == {"kind": "features", "width": 6, "names": None}
    assert "files" not in detail
    assert_problem(app.get("/models/tny"), 404, "unknown_model", "did you mean 'tiny'?")


def test_descriptions_and_answers_are_as_openapi_says(app):
    """Every key that is sent is documented, and the other way round."""
    document = app.get("/openapi.json").json()

    def keys(name):
        return set(document["components"]["schemas"][name]["properties"])

    answer = app.predict({"inputs": [ROW]}).json()
    assert set(answer) == keys("PredictAnswer")
    assert set(answer["model"]) == keys("ModelHead")
    assert set(answer["latency_ms"]) == keys("LatencyMs")
    assert set(answer["predictions"][0]) == keys("Prediction")
    assert set(app.get("/models").json()["models"][0]) == keys("ModelSummary")
    assert set(app.get("/models/tiny").json()) == keys("ModelDetail")
    statuses = {str(int(status)) for status, _ in TABLE.values()} | {"200", "500"}
    statuses -= {"403"}  # any key that is known may predict
    assert set(document["paths"]["/predict"]["post"]["responses"]) == statuses


def test_a_draining_server_is_alive_but_not_ready(app):
    assert app.get("/readyz").json() == {"status": "ok", "problems": {}}
    service = app.app.state.service
    asyncio.run(service.drain())
    assert app.get("/healthz").json() == {"status": "ok"}
    not_ready = app.get("/readyz")
    assert_problem(not_ready, 503, "draining", "the server is stopping")
    refused = app.predict({"inputs": [ROW]})
    assert_problem(refused, 503, "draining", "send the request to another one")
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["connection"] == "close"


def test_metrics_count_what_happened(app, model):
    for rows in (1, 2):
        app.predict({"inputs": model.rows(rows)})
    app.predict({"inputs": [[1]]})
    app.predict({"inputs": [ROW], "model": "nobody"})
    tiny = {"model": "tiny", "method": "bce"}
    assert app.metric("labelwright_requests_total", **tiny, status="200") == 2
    assert app.metric("labelwright_requests_total", **tiny, status="422") == 1
    assert app.metric("labelwright_requests_total", model="", method="", status="404") == 1
    assert app.metric("labelwright_rows_total", **tiny) == 3
    assert app.metric("labelwright_batch_rows_bucket", **tiny, le="1.0") == 1
    for name in ("request", "queue", "inference"):
        assert app.metric(f"labelwright_{name}_seconds_count", **tiny) == 2
        assert app.metric(f"labelwright_{name}_seconds_bucket", **tiny, le="0.0001") is not None
    assert app.metric("labelwright_in_flight_requests") == 0
    assert app.metric("labelwright_queued_rows", **tiny) == 0
    text = app.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain")
    assert 'labelwright_model_info{dataset="demo",method="bce",model="tiny"' in text.text
    names = [line.split()[2] for line in text.text.splitlines() if line.startswith("# TYPE")]
    assert all(name.startswith("labelwright_") for name in names)


def test_two_applications_count_apart(serve_app):
    first, second = serve_app(), serve_app()
    first.predict({"inputs": [ROW]})
    assert second.metric("labelwright_rows_total", model="tiny", method="bce") == 0


def test_a_bug_in_the_model_is_500_and_logged_with_the_request_id(app, monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(app.app.state.service.models["tiny"].predictor, "run", broken)
    with caplog.at_level(logging.ERROR, logger="serve"):
        answer = app.predict({"inputs": [ROW]}, headers={"x-request-id": "my-id"})
    assert_problem(answer, 500, "internal_error", "the server failed on this request")
    assert "secret detail" not in answer.text
    assert "my-id" in caplog.text
    assert "secret detail" in caplog.text


def test_a_bug_in_a_route_is_500_and_logged_with_the_request_id(app, monkeypatch, caplog):
    def broken():
        raise RuntimeError("secret detail")

    monkeypatch.setattr(app.app.state.service.telemetry, "exposition", broken)
    with caplog.at_level(logging.ERROR, logger="serve"):
        answer = app.get("/metrics", headers={"x-request-id": "my-id"})
    assert_problem(answer, 500, "internal_error", "the server failed on this request")
    assert "secret detail" not in answer.text
    assert "my-id" in caplog.text


def test_the_interface_is_the_committed_one():
    committed = (ROOT / "serve" / "openapi.json").read_text(encoding="utf-8")
    assert openapi_text() == committed, "run `make openapi` and review the difference"


def test_the_docs_page_is_there(app):
    page = app.get("/docs")
    assert page.status_code == 200
    assert "/openapi.json" in page.text


def test_labels_of_any_text_survive(app, model):
    answer = app.predict({"inputs": [ROW], "top_k": 8})
    assert sorted(answer.json()["predictions"][0]["labels"]) == sorted(model.names)


def test_answers_are_plain_json(app):
    answer = app.predict({"inputs": [ROW]})
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert isinstance(answer, httpx.Response)
