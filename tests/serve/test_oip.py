"""The Open Inference Protocol with Triton's own clients, over the protocol's fast path."""

from __future__ import annotations

import asyncio
import json
import warnings

import httpx
import numpy as np
import pytest

from serve.settings import Settings
from tests.serve.live import live

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tritonclient.http as triton
    import tritonclient.http.aio as triton_aio
    from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(params=["protocol", "asgi"])
def server(request, serve_app, bundle_path, other_path):
    app = serve_app(bundle_path, other_path).app
    settings = Settings(bundles=(bundle_path, other_path), http=request.param)
    with live(app, settings) as running:
        yield running


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        yield client


@pytest.fixture
def version(server):
    return server.service.models["tiny"].manifest.version


def rows_input(rows, module=triton, *, binary=True, datatype="FP32"):
    array = np.array(rows, dtype=np.float32 if datatype == "FP32" else np.float64)
    tensor = module.InferInput("features", array.shape, datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def outputs(*names, module=triton, binary=True, **options):
    return [module.InferRequestedOutput(name, binary_data=binary, **options) for name in names]


def assert_best(result, model, rows, k):
    names = result.as_numpy("labels")
    scores, columns = result.as_numpy("top_scores"), result.as_numpy("top_labels")
    assert names.shape == scores.shape == columns.shape == (len(rows), k)
    assert (scores.dtype, columns.dtype) == (np.float32, np.int64)
    for row, got_names, got_scores, got_columns in zip(rows, names, scores, columns, strict=True):
        expected = model.expected(row, k)
        texts = [n.decode() if isinstance(n, bytes) else n for n in got_names]
        assert texts == [name for name, _ in expected]
        assert [model.names[column] for column in got_columns] == texts
        assert got_scores == pytest.approx([score for _, score in expected], abs=1e-6)


@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
@pytest.mark.parametrize("out", [True, False], ids=["bytes out", "json out"])
@pytest.mark.parametrize("into", [True, False], ids=["bytes in", "json in"])
def test_triton_s_client_gets_its_rows_scored(client, model, version, into, out, datatype):
    rows = model.rows(3)
    wanted = outputs("labels", "top_scores", "top_labels", "scores", binary=out)
    result = client.infer(
        "tiny",
        [rows_input(rows, binary=into, datatype=datatype)],
        outputs=wanted,
        request_id="mine",
        parameters={"top_k": 3},
    )
    assert_best(result, model, rows, 3)
    np.testing.assert_allclose(result.as_numpy("scores"), model.scores(rows), atol=1e-6)
    answer = result.get_response()
    assert (answer["model_name"], answer["model_version"]) == ("tiny", version)
    assert answer["id"] == "mine"


def test_all_outputs_by_default(client, model):
    rows = model.rows(2)
    result = client.infer("tiny", [rows_input(rows)])
    assert_best(result, model, rows, 5)
    np.testing.assert_allclose(result.as_numpy("scores"), model.scores(rows), atol=1e-6)


def test_the_aio_client(server, model):
    rows = model.rows(2)

    async def talk():
        async with triton_aio.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
            assert await client.is_server_live()
            assert await client.is_model_ready("tiny")
            calls = [
                client.infer(
                    "tiny",
                    [rows_input([row], triton_aio)],
                    outputs=outputs("labels", "top_scores", "top_labels", module=triton_aio),
                    parameters={"top_k": 2},
                )
                for row in rows
            ]
            return await asyncio.gather(*calls)

    for row, result in zip(rows, asyncio.run(talk()), strict=True):
        assert_best(result, model, [row], 2)


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
def test_packed_requests(client, model, version, packing):
    rows = model.rows(2)
    result = client.infer(
        "tiny",
        [rows_input(rows)],
        request_compression_algorithm=packing,
        model_version=version,
    )
    assert_best(result, model, rows, 5)


@pytest.mark.parametrize("binary", [True, False])
def test_classification(client, model, binary):
    rows = model.rows(2)
    wanted = outputs("scores", binary=binary, class_count=3)
    best = client.infer("tiny", [rows_input(rows)], outputs=wanted).as_numpy("scores")
    assert best.shape == (2, 3)
    for row, got in zip(rows, best, strict=True):
        for text, (name, score) in zip(got, model.expected(row, 3), strict=True):
            plain = text.decode() if isinstance(text, bytes) else text
            value, column, label = plain.split(":", 2)
            assert (label, model.names[int(column)]) == (name, name)
            assert float(value) == pytest.approx(score, abs=1e-5)


def test_health_and_metadata(client, version):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("other")
    assert client.is_model_ready("tiny", version)
    assert not client.is_model_ready("other", "9")
    assert not client.is_model_ready("none")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    about = client.get_model_metadata("tiny")
    assert about["inputs"] == [{"name": "features", "datatype": "FP32", "shape": [-1, 6]}]
    assert {output["name"]: output["shape"] for output in about["outputs"]} == {
        "scores": [-1, 8],
        "top_scores": [-1, -1],
        "top_labels": [-1, -1],
        "labels": [-1, -1],
    }


def test_unloading_and_loading(client, server, model):
    assert [entry["state"] for entry in client.get_model_repository_index()] == ["READY"] * 2
    client.unload_model("tiny")
    assert not client.is_model_ready("tiny")
    index = {entry["name"]: entry for entry in client.get_model_repository_index()}
    assert (index["tiny"]["state"], index["tiny"]["reason"]) == ("UNAVAILABLE", "unloaded")
    assert server.post({"inputs": model.rows(1), "model": "tiny"}).status_code == 404
    with pytest.raises(InferenceServerException, match="no model 'tiny' is loaded"):
        client.infer("tiny", [rows_input(model.rows(1))])
    client.load_model("tiny")
    assert client.is_model_ready("tiny")
    assert_best(client.infer("tiny", [rows_input(model.rows(1))]), model, model.rows(1), 5)
    with pytest.raises(InferenceServerException, match="there is no model 'tinny'"):
        client.load_model("tinny")


def infer(server, body, path="/v2/models/tiny/infer", **headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{server.url}{path}", content=content, headers=headers)


def tensor(**changes):
    return {"name": "features", "shape": [1, 6], "datatype": "FP32", "data": [0] * 6, **changes}


def test_data_may_be_nested(server, model):
    rows = model.rows(2)
    answer = infer(server, {"inputs": [tensor(shape=[2, 6], data=rows)]}).json()
    scores = next(output for output in answer["outputs"] if output["name"] == "scores")
    np.testing.assert_allclose(
        np.reshape(scores["data"], scores["shape"]), model.scores(rows), atol=1e-6
    )


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"{", 400, "the body is not JSON"),
        (b"[]", 422, "must be an object, got a list"),
        ({}, 422, "must be a list of one tensor"),
        ({"inputs": [tensor(), tensor()]}, 422, "must be a list of one tensor"),
        ({"inputs": [tensor(name="x")]}, 422, "the input must be 'features', got 'x'"),
        ({"inputs": [tensor(datatype="INT8")]}, 422, "must be FP32 or FP64, got 'INT8'"),
        ({"inputs": [tensor(shape=[6])]}, 422, "must be [rows, 6]"),
        ({"inputs": [tensor(shape=[1, -6])]}, 422, '"shape" of input'),
        ({"inputs": [tensor(shape=[2, 6])]}, 422, "must hold 12 values, got 6"),
        ({"inputs": [tensor(shape=[1, 5], data=[0] * 5)]}, 422, "must have 6 numbers, got 5"),
        ({"inputs": [tensor(data=["a"] * 6)]}, 422, "must hold numbers only, got a string"),
        ({"inputs": [tensor(data=None)]}, 422, "must hold numbers only, got null"),
        ({"inputs": [tensor(data=[0, 0, 0, 0, 0, 1e39])]}, 422, "row 0 holds a number that is not"),
        ({"inputs": [tensor(parameters=3)]}, 422, '"parameters" must be an object'),
        ({"inputs": [tensor(parameters={"binary_data_size": 24})]}, 422, "0 bytes follow the JSON"),
        ({"inputs": [tensor()], "outputs": [{"name": "score"}]}, 422, "did you mean 'scores'"),
        ({"inputs": [tensor()], "outputs": 3}, 422, '"outputs" must be a list'),
        ({"inputs": [tensor()], "parameters": {"top_k": 9}}, 422, '"top_k" must be 1 to 8'),
        ({"inputs": [tensor()], "parameters": {"timeout": -1}}, 422, "microseconds"),
        (
            {
                "inputs": [tensor()],
                "outputs": [{"name": "scores", "parameters": {"classification": 9}}],
            },
            422,
            "must be at most 8",
        ),
    ],
)
def test_mistakes_are_one_sentence(server, body, status, sentence):
    answer = infer(server, body)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert sentence in answer.json()["error"]


def test_other_mistakes(server, version):
    body = {"inputs": [tensor()]}
    assert infer(server, body, "/v2/models/none/infer").status_code == 404
    wrong = infer(server, body, "/v2/models/tiny/versions/9/infer")
    assert f"is loaded in version {version!r}, not '9'" in wrong.json()["error"]
    for length in ("99999", "-1", "x"):
        answer = infer(server, body, **{"inference-header-content-length": length})
        assert "Inference-Header-Content-Length must be 0 to" in answer.json()["error"]
