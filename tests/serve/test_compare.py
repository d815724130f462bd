"""Comparing the speed of models, and energy networks beside their models."""

from __future__ import annotations

import httpx
import pytest

from tests.serve.test_bench import rewritten


@pytest.fixture
def two(serve_app, bundle_path, write, other_model, tmp_path):
    """Two models that take the same rows."""
    from tests.serve.conftest import Linear

    second = write(tmp_path / "second.bundle", Linear.random(6, 8, seed=5), name="second")
    return serve_app(bundle_path, second)


def speeds(app, query=""):
    answer = app.get(f"/compare{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()["baseline"], {m["name"]: m for m in answer.json()["models"]}


def test_before_the_first_request_nothing_is_known(two):
    baseline, models = speeds(two)
    assert baseline == "tiny"
    for model in models.values():
        assert (model["requests"], model["rows"]) == (0, 0)
        assert model["rows_per_second"] is model["ratio"] is None
        assert set(model["latency_ms"].values()) == {None}


def test_speeds_are_those_of_the_metrics(two, model):
    for name, rows in (("tiny", 3), ("second", 5), ("second", 2)):
        assert two.predict({"inputs": model.rows(rows), "model": name}).status_code == 200
    _, models = speeds(two)
    rate = {}
    for name, requests, rows in (("tiny", 1, 3), ("second", 2, 7)):
        labels = {"model": name, "method": "bce"}
        seconds = two.metric("labelwright_inference_seconds_sum", **labels)
        rate[name] = rows / seconds
        got = models[name]
        assert (got["requests"], got["rows"]) == (requests, rows)
        assert got["rows_per_second"] == pytest.approx(rate[name], abs=0.1)
        assert 0 < got["latency_ms"]["p50"] <= got["latency_ms"]["p95"] <= got["latency_ms"]["p99"]
    ratio = rate["second"] / rate["tiny"]
    assert models["tiny"]["ratio"] == 1
    assert models["second"]["ratio"] == pytest.approx(ratio, abs=1e-3)
    labels = {"model": "second", "baseline": "tiny"}
    assert two.metric("labelwright_speed_ratio", **labels) == pytest.approx(ratio)
    _, turned = speeds(two, "?baseline=second")
    assert turned["tiny"]["ratio"] == pytest.approx(1 / ratio, abs=1e-3)


def test_an_unknown_baseline_is_refused(two):
    assert two.get("/compare?baseline=none").status_code == 404


def test_one_input_through_several_models_gets_the_answers_of_predict(two, model):
    rows = model.rows(2)
    answer = two.request("POST", "/compare", json={"inputs": rows, "top_k": 3})
    assert answer.status_code == 200, answer.text
    answers = answer.json()["answers"]
    assert [one["answer"]["model"]["name"] for one in answers] == ["tiny", "second"]
    for one in answers:
        name = one["answer"]["model"]["name"]
        alone = two.predict({"inputs": rows, "top_k": 3, "model": name}).json()
        assert one["status"] == 200
        assert one["answer"]["predictions"] == alone["predictions"]
        assert one["milliseconds"] >= one["answer"]["latency_ms"]["inference"] > 0


def test_a_model_that_cannot_answer_says_so_in_its_place(serve_app, bundle_path, other_path, model):
    app = serve_app(bundle_path, other_path)
    body = {"inputs": model.rows(1), "models": ["other", "tiny"]}
    first, second = app.request("POST", "/compare", json=body).json()["answers"]
    assert first["status"] == 422
    assert first["answer"]["error"]["message"] == "row 0 must have 3 numbers, got 6"
    assert second["status"] == 200
    assert app.metric("labelwright_in_flight_requests") == 0


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (
            {"inputs": [[1]], "models": "tiny"},
            422,
            '"models" must be a list of names, got a string',
        ),
        ({"inputs": [[1]], "models": []}, 422, '"models" must be a list'),
        ({"inputs": [[1]], "models": ["none"]}, 404, "no model 'none' is loaded"),
        ({"inputs": [[1]], "model": "tiny"}, 422, "did you mean 'models'"),
        ({}, 422, 'no "inputs"'),
        ({"inputs": 68238831700215}, 422, '"inputs" must be a list of rows, got a number'),
        ({"inputs": []}, 422, "at least one row"),
        ({"inputs": [[1]]}, 422, "row 0 must have 6 numbers, got 1"),
    ],
)
def test_wrong_comparisons_are_one_sentence(two, body, status, sentence):
    answer = two.request("POST", "/compare", json=body)
    assert answer.status_code == status
    assert sentence in answer.json()["error"]["message"]


def test_a_body_beyond_the_limit_is_refused(serve_app):
    app = serve_app(max_body_mb=1)
    assert app.request("POST", "/compare", content=b" " * (2**20 + 1)).status_code == 413


def test_an_energy_network_is_served_beside_its_model(start_server, bundle_path, tmp_path, model):
    path = rewritten(bundle_path, tmp_path / "two.bundle", with_energy=True)
    with start_server(path, "--energy", "--baseline", "tiny-energy") as server:
        assert server.line.startswith("serving tiny, tiny-energy on ")
        body = {"inputs": model.rows(2)}
        answers = httpx.post(f"{server.url}/compare", json=body).json()["answers"]
        first, second = (one["answer"]["predictions"] for one in answers)
        assert first == second  # it is the same graph here
        compared = httpx.get(f"{server.url}/compare").json()
        assert compared["baseline"] == "tiny-energy"
        assert {m["name"]: m["requests"] for m in compared["models"]} == {
            "tiny": 1,
            "tiny-energy": 1,
        }
