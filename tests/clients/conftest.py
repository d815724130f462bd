"""A scripted HTTP server on loopback, and one face for both clients: each test meets both."""

from __future__ import annotations

import asyncio
import io
import json
import os
import ssl
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.bundle import MODEL as GRAPH
from export.bundle import Contents, InputSpec, Manifest, Thresholds, drafted, write_bundle
from labelwright_client import AsyncClient, Client

ROOT = Path(__file__).parents[2]
MODEL = {
    "name": "delicious-seal",
    "version": "0123456789ab",
    "method": "seal",
    "task": "multilabel",
    "dataset": "delicious",
    "input": {"kind": "features", "width": 3, "names": ["a", "b", "c"]},
    "label_count": 983,
    "thresholds": {"tuned": 0.25},
    "test_scores": {"example_f1": 0.37, "map": 1},
}


MASK = (
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAAAAABX3VL4AAAADklEQVR4nGNg"
    "YGBgYAAAAAYAAXKCmeoAAAAASUVORK5CYII="
)
"""A PNG of 2 x 2 black pixels."""
SPEED = {
    **{key: MODEL[key] for key in ("name", "version", "method", "dataset")},
    "requests": 3,
    "rows": 12,
    "rows_per_second": 1000.0,
    "ratio": 1,
    "latency_ms": {"p50": 0.5, "p95": 1, "p99": None},
}


def predict_answer(row_count: int, request_id: str = "from-body") -> dict[str, Any]:
    """What the server says to `row_count` rows: row i has the one label `label-i`."""
    return {
        "model": {key: MODEL[key] for key in ("name", "version", "method")},
        "predictions": [
            {"labels": [f"label-{i}"], "scores": [1.0 / (i + 1)]} for i in range(row_count)
        ],
        "latency_ms": {"queue": 0.1, "inference": 0.3, "total": 1},
        "request_id": request_id,
    }


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: Any
    peer: tuple[str, int]


@dataclass
class FakeServer:
    """Answers as a healthy server does, after the scripted answers are used up."""

    url: str = ""
    script: deque[tuple[int, dict[str, str], bytes]] = field(default_factory=deque)
    seen: list[Seen] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    holding: bool = False

    def then(self, status: int, body: Any = b"", **headers: str) -> None:
        """Script one answer; a dict becomes JSON, `retry_after=` the header Retry-After."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.script.append((status, {k.replace("_", "-"): v for k, v in headers.items()}, raw))

    def answer(self, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        if self.script:
            return self.script.popleft()
        status, body = self.healthy(seen)
        return status, {"x-request-id": seen.headers["x-request-id"]}, json.dumps(body).encode()

    def healthy(self, seen: Seen) -> tuple[int, Any]:  # noqa: PLR0911 - one for each route
        if seen.path == "/embed":
            answer = predict_answer(0, seen.headers["x-request-id"])
            del answer["predictions"]
            vectors = [[float(i), 0.5] for i in range(len(seen.body["inputs"]))]
            return 200, {**answer, "embeddings": vectors}
        if seen.path.startswith("/compare"):
            return 200, self.compared(seen)
        if isinstance(seen.body, bytes):
            rows = np.load(io.BytesIO(seen.body), allow_pickle=False)
            return 200, predict_answer(len(rows), seen.headers["x-request-id"])
        if seen.path == "/predict":
            if seen.body.get("model") == "no-such-model":
                return 404, {"error": {"type": "unknown_model", "message": "no", "request_id": "r"}}
            answer = predict_answer(len(seen.body["inputs"]), seen.headers["x-request-id"])
            masks = [{"mask": MASK, "coverage": 0.0} for _ in answer["predictions"]]
            return 200, {**answer, "predictions": masks} if "mask" in seen.body else answer
        if seen.path == "/readyz":
            return 200, {"status": "ok"}
        return 200, {"models": [MODEL]} if seen.path == "/models" else MODEL

    def compared(self, seen: Seen) -> Any:
        if seen.method == "GET":
            return {"baseline": "delicious-seal", "models": [SPEED]}
        answer = predict_answer(len(seen.body["inputs"]))
        names = seen.body.get("models", ["delicious-seal"])
        return {"answers": [{"status": 200, "answer": answer, "milliseconds": 1} for _ in names]}


def _handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one packet, else each answer waits for a delayed ACK

        def answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {key.lower(): value for key, value in self.headers.items()}
            body = json.loads(raw) if raw and "json" in headers["content-type"] else raw or None
            seen = Seen(self.command, self.path, headers, body, self.client_address)
            server.seen.append(seen)
            if server.holding:
                server.hold.wait()
            status, headers, content = server.answer(seen)
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer  # noqa: N815 - the names http.server looks for

        def log_message(self, *_: object) -> None:
            pass

        def handle(self) -> None:
            # A client that gave up waiting has closed the socket: not worth a traceback.
            try:
                super().handle()
            except ConnectionError:
                self.close_connection = True

    return Handler


class Listener(ThreadingHTTPServer):
    # The default of 5 drops the rest of a burst, and the kernel tries again only after a second.
    request_queue_size = 64


@pytest.fixture
def server():
    fake = FakeServer()
    http = Listener(("127.0.0.1", 0), _handler(fake))
    fake.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield fake
    fake.hold.set()
    http.shutdown()
    thread.join()
    http.server_close()


class Clock:
    """Time that passes only by sleeping, and a record of every sleep."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds

    async def async_sleep(self, seconds: float) -> None:
        self.sleep(seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Blocking:
    """An AsyncClient whose methods are awaited on the spot."""

    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self._client, self._runner = client, runner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            answer = method(*args, **kwargs)
            if hasattr(answer, "__aiter__"):
                return [item async for item in answer]
            return await answer

        return lambda *args, **kwargs: self._runner.run(
            call(*args, **kwargs), context=copy_context()
        )


@pytest.fixture(scope="session")
def no_tls() -> ssl.SSLContext:
    """A context without certificates: loading them for each client took half the suite."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.fixture(params=["sync", "async"])
def connect(request, clock, no_tls):
    """A function that makes a client: the synchronous one in one run, the other in the next."""
    with asyncio.Runner() as runner:
        closers = []

        def make(base_url: str | None = None, **options: Any) -> Any:
            if request.param == "sync":
                options = {"transport": httpx.HTTPTransport(verify=no_tls)} | options
                client = Client(base_url, clock=clock, sleep=clock.sleep, **options)
                closers.append(client.close)
                return client
            options = {"transport": httpx.AsyncHTTPTransport(verify=no_tls)} | options
            made = AsyncClient(base_url, clock=clock, sleep=clock.async_sleep, **options)
            client = Blocking(made, runner)
            closers.append(client.aclose)
            return client

        yield make
        for close in closers:
            close()


@pytest.fixture
def model_answer() -> dict[str, Any]:
    """One model as `GET /models/{name}` gives it, free to be damaged."""
    return json.loads(json.dumps(MODEL))


@pytest.fixture
def make_predict_answer():
    return predict_answer


@pytest.fixture(scope="session")
def bundle(tmp_path_factory) -> Path:
    """A model whose two labels are its two columns."""
    value, path = helper.make_tensor_value_info, tmp_path_factory.mktemp("bundle") / "two.bundle"
    graph = helper.make_graph(
        [
            helper.make_node("Sigmoid", ["features"], ["scores"]),
            helper.make_node("Reshape", ["k", "one"], ["k1"]),
            helper.make_node("TopK", ["scores", "k1"], ["top_scores", "top_labels"]),
        ],
        "two",
        [
            value("features", TensorProto.FLOAT, ["rows", 2]),
            value("k", TensorProto.INT64, []),
        ],
        [
            value("scores", TensorProto.FLOAT, ["rows", 2]),
            value("top_scores", TensorProto.FLOAT, ["rows", "best"]),
            value("top_labels", TensorProto.INT64, ["rows", "best"]),
        ],
        [numpy_helper.from_array(np.array([1], dtype=np.int64), "one")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    probe = np.array([[1.0, 0.0], [0.5, 2.0]], dtype=np.float32)
    manifest = Manifest(
        name="two",
        version="0123456789ab",
        method="ce",
        task="multilabel",
        dataset="two",
        input=InputSpec(kind="features", width=2, names=["left", "right"]),
        label_count=2,
        thresholds=Thresholds(tuned=0.6, per_label=[0.6, 0.6]),
        test_scores={"micro_f1": 0.5},
        largest_difference=1e-7,
        versions={"onnx": onnx.__version__},
    )
    with drafted(path) as folder:
        (folder / GRAPH).write_bytes(model.SerializeToString())
        scores = (1 / (1 + np.exp(-probe))).astype(np.float32)
        contents = Contents(labels=["L", "R"], probe={"features": probe}, probe_scores=scores)
        write_bundle(folder, manifest, contents)
    return path


@contextmanager
def serving(bundle: Path, *flags: object) -> Iterator[str]:
    """A server of a model, in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "serve", str(bundle), "--port", "0", "--workers", "1"]
        + [str(flag) for flag in flags],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        try:
            yield server.stdout.readline().split()[-1]
        finally:
            server.terminate()
            server.communicate(timeout=30)


@pytest.fixture(scope="session")
def address(bundle) -> Iterator[str]:
    """A server of that model."""
    with serving(bundle) as url:
        yield url
