"""Tiny bundles whose graph is written by hand, so that nothing here needs torch."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.bundle import (
    MODEL,
    Contents,
    InputSpec,
    Manifest,
    Thresholds,
    drafted,
    load_bundle,
    write_bundle,
)
from serve.app import create_app
from serve.predictor import OnnxPredictor
from serve.settings import Settings

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Linear:
    """The model of all tests, and the oracle: sigmoid(x W + b), in float64."""

    weights: np.ndarray
    bias: np.ndarray

    @classmethod
    def random(cls, width: int, labels: int, seed: int) -> Linear:
        rng = np.random.default_rng(seed)
        return cls(rng.normal(size=(width, labels)), rng.normal(size=labels))

    @property
    def width(self) -> int:
        return self.weights.shape[0]

    @property
    def label_count(self) -> int:
        return self.weights.shape[1]

    @property
    def names(self) -> list[str]:
        return [f'label "{column}" é' for column in range(self.label_count)]

    def rows(self, count: int, seed: int = 0) -> list[list[float]]:
        values = np.random.default_rng(seed).normal(size=(count, self.width))
        return values.astype(np.float32).astype(float).tolist()

    def scores(self, rows: Any) -> np.ndarray:
        return 1 / (1 + np.exp(-(np.asarray(rows, dtype=np.float64) @ self.weights + self.bias)))

    def expected(
        self, row: list[float], top_k: int | None, threshold: Any = 0.0
    ) -> list[tuple[str, float]]:
        """The slow way: sort all labels, keep those that pass, take the first k."""
        pairs = sorted(enumerate(self.scores([row])[0]), key=lambda pair: -pair[1])
        limits = np.broadcast_to(threshold, self.label_count)
        kept = [(self.names[i], float(score)) for i, score in pairs if score >= limits[i]]
        return kept[:top_k]

    def graph(self) -> onnx.ModelProto:
        value = helper.make_tensor_value_info
        nodes = [
            helper.make_node("MatMul", ["features", "W"], ["product"]),
            helper.make_node("Add", ["product", "b"], ["logits"]),
            helper.make_node("Sigmoid", ["logits"], ["scores"]),
            helper.make_node("Reshape", ["k", "one"], ["k1"]),
            helper.make_node("TopK", ["scores", "k1"], ["top_scores", "top_labels"]),
        ]
        constants = {
            "W": self.weights.astype(np.float32),
            "b": self.bias.astype(np.float32),
            "one": np.array([1], dtype=np.int64),
        }
        graph = helper.make_graph(
            nodes,
            "linear",
            [
                value("features", TensorProto.FLOAT, ["rows", self.width]),
                value("k", TensorProto.INT64, []),
            ],
            [
                value("scores", TensorProto.FLOAT, ["rows", self.label_count]),
                value("top_scores", TensorProto.FLOAT, ["rows", "best"]),
                value("top_labels", TensorProto.INT64, ["rows", "best"]),
            ],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


PER_LABEL = [0.9, 0.1, 0.5, 0.3, 0.7, 0.2, 0.6, 0.4]
TUNED = 0.45


def write_linear(path: Path, model: Linear, *, name: str = "tiny", **changes: Any) -> Path:
    """Write a bundle; `changes` replace fields of the manifest, `graph` or `probe_scores`."""
    probe = np.array(model.rows(3, seed=99), dtype=np.float32)
    graph = changes.pop("graph", model.graph())
    scores = changes.pop("probe_scores", model.scores(probe).astype(np.float32))
    fields: dict[str, Any] = {
        "name": name,
        "version": "0123456789ab",
        "method": "bce",
        "task": "multilabel",
        "dataset": "demo",
        "input": InputSpec(kind="features", width=model.width),
        "label_count": model.label_count,
        "thresholds": Thresholds(tuned=TUNED, per_label=PER_LABEL[: model.label_count]),
        "test_scores": {"micro_f1": 0.5},
        "largest_difference": 1e-7,
        "versions": {"onnx": onnx.__version__},
    }
    with drafted(path) as folder:
        (folder / MODEL).write_bytes(graph.SerializeToString())
        contents = Contents(labels=model.names, probe={"features": probe}, probe_scores=scores)
        write_bundle(folder, Manifest(**{**fields, **changes}), contents)
    return path


@pytest.fixture(scope="session")
def model() -> Linear:
    return Linear.random(width=6, labels=8, seed=1)


@pytest.fixture(scope="session")
def write() -> Callable[..., Path]:
    return write_linear


@pytest.fixture(scope="session")
def bundle_path(model: Linear, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_linear(tmp_path_factory.mktemp("bundles") / "tiny.bundle", model)


@pytest.fixture(scope="session")
def other_model() -> Linear:
    return Linear.random(width=3, labels=4, seed=2)


@pytest.fixture(scope="session")
def other_path(other_model: Linear, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "other.bundle"
    return write_linear(path, other_model, name="other", method="seal")


Call = Callable[..., httpx.Response]


@dataclass(frozen=True)
class InProcess:
    """An application without a socket; every call has an event loop of its own."""

    app: Any

    def run(self, talk: Callable[[httpx.AsyncClient], Any]) -> Any:
        async def main() -> Any:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                return await talk(client)

        return asyncio.run(main())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.run(lambda client: client.get(path, **options))

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.run(lambda client: client.request(method, path, **options))

    def predict(self, body: Any, **options: Any) -> httpx.Response:
        return self.run(lambda client: client.post("/predict", json=body, **options))

    def predict_raw(self, content: Any, **options: Any) -> httpx.Response:
        options.setdefault("headers", {"content-type": "application/json"})
        return self.run(lambda client: client.post("/predict", content=content, **options))

    def metric(self, name: str, **labels: str) -> float | None:
        return self.app.state.service.telemetry.registry.get_sample_value(name, labels)


@pytest.fixture
def serve_app(bundle_path: Path) -> Callable[..., InProcess]:
    """Builds an application; `slow=True` makes it believe that its model needs the thread."""

    def build(*paths: Path, slow: bool = False, **settings: Any) -> InProcess:
        options = Settings(bundles=paths or (bundle_path,), **settings)
        predictors = [OnnxPredictor(load_bundle(path)) for path in options.bundles]
        for predictor in predictors:
            predictor.seconds_per_batch = 1.0 if slow else 1e-6
        return InProcess(create_app(options, predictors))

    return build


@pytest.fixture
def app(serve_app: Callable[..., InProcess]) -> InProcess:
    return serve_app()


@dataclass(frozen=True)
class Running:
    process: subprocess.Popen[str]
    line: str

    @property
    def url(self) -> str:
        return self.line.rpartition(" on ")[2]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "serve", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def run_server(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `python -m serve` to its end, in an empty folder."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            env=environment(),
            check=False,
        )

    return run


@pytest.fixture
def start_server() -> Callable[..., Any]:
    """Starts `python -m serve` on a free port and waits for its two lines."""

    @contextmanager
    def start(*arguments: object) -> Iterator[Running]:
        process = subprocess.Popen(
            command(*arguments, "--port", 0),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline().rstrip("\n")
            process.stdout.readline()  # about the start
            yield Running(process, line)
        finally:
            process.kill()
            process.communicate()

    return start
