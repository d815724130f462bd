"""The servers to compare: how each is installed, started, asked and understood."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.serving.model import TOP_K, WIDTH

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = Path.home() / ".cache" / "labelwright-benchmarks"
"""Where peers are installed, once."""
OCTETS = "application/octet-stream"
Best = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Columns and scores of the best labels, (rows, TOP_K) each."""


@dataclass(frozen=True)
class Body:
    """One request as it is sent."""

    content: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


@dataclass(frozen=True, kw_only=True)
class Server:
    """One server that can be started."""

    name: str
    path: str
    body: Callable[[NDArray[np.float32]], Body]
    read: Callable[[Any, bytes], Best] | None
    """Headers and body of an answer -> what it says; None: it says nothing."""
    start: Callable[[Setting], tuple[list[str], dict[str, str]]]
    """Command and environment."""
    binary: Callable[[NDArray[np.float32]], Body] | None = None
    packages: tuple[str, ...] = ()
    """To install in an environment of its own; none: it runs in this one."""
    ready: str = "/readyz"
    is_restless: bool = False
    """It keeps a core busy while nobody asks it, so it is stopped while others are loaded."""


@dataclass(frozen=True)
class Setting:
    """Where a server finds what it needs."""

    folder: Path
    """The server's own."""
    python: Path
    bundle: Path
    graph: Path
    port: int
    workers: int


def servers() -> list[Server]:
    """All servers, ours first."""
    return [
        *(ours(http) for http in ("protocol", "asgi")),
        replace(ours("protocol", "--max-batch-rows", "1"), name="ours, no batching"),
        Server(
            name="Triton, Python backend",
            path="/v2/models/network/infer",
            body=_oip_json,
            binary=_oip_binary,
            read=_read_oip,
            start=_start_triton,
            packages=("nvidia-pytriton==0.7.0", "onnxruntime", "numpy<3"),
            ready="/v2/health/ready",
        ),
        Server(
            name="MLServer",
            path="/v2/models/network/infer",
            body=_oip_json,
            read=_read_oip,
            start=_start_mlserver,
            # Its parallel workers do not start with uvloop 0.22.
            packages=("mlserver==1.7.1", "onnxruntime", "uvloop<0.22"),
            ready="/v2/models/network/ready",
        ),
        Server(
            name="BentoML",
            path="/predict",
            body=_plain_json,
            read=_read_bento,
            start=_start_bentoml,
            packages=("bentoml>=1.4", "onnxruntime", "numpy<3"),
        ),
        Server(
            name="LitServe",
            is_restless=True,
            path="/predict",
            body=_plain_json,
            read=_read_lit,
            start=_start_litserve,
            packages=("litserve>=0.2.16", "onnxruntime", "numpy<3"),
            ready="/health",
        ),
        Server(
            name="no-op ASGI, 1 process",
            path="/",
            body=_plain_json,
            read=None,
            start=_start_noop,
            ready="/",
        ),
    ]


def ours(http: str, *options: str) -> Server:
    """Our server, by default with nothing but its defaults; `bundle` may be a repository."""

    def start(setting: Setting) -> tuple[list[str], dict[str, str]]:
        is_bundle = setting.bundle.suffix == ".bundle"
        what = [setting.bundle] if is_bundle else ["--repository", setting.bundle]
        command = [sys.executable, "-m", "serve", *what, "--http", http]
        command += ["--port", setting.port, "--workers", setting.workers, *options]
        return [str(part) for part in command], {"PYTHONPATH": str(ROOT)}

    return Server(
        name=f"ours, {http}",
        path="/predict",
        body=our_json,
        binary=_our_binary,
        read=_read_ours,
        start=start,
    )


def _numbers(rows: NDArray[np.float32]) -> list[list[float]]:
    """Six digits each, as a person would send them."""
    return [[round(float(value), 6) for value in row] for row in rows]


def _plain_json(rows: NDArray[np.float32]) -> Body:
    return Body(json.dumps({"inputs": _numbers(rows)}).encode())


def our_json(rows: NDArray[np.float32]) -> Body:
    """Rows as our clients send them."""
    return Body(json.dumps({"inputs": _numbers(rows), "top_k": TOP_K}).encode())


def _our_binary(rows: NDArray[np.float32]) -> Body:
    return Body(rows.astype("<f4").tobytes(), {"content-type": OCTETS})


def _oip_head(rows: NDArray[np.float32]) -> dict[str, Any]:
    return {"name": "features", "shape": list(rows.shape), "datatype": "FP32"}


def _oip_json(rows: NDArray[np.float32]) -> Body:
    data = [value for row in _numbers(rows) for value in row]
    return Body(json.dumps({"inputs": [{**_oip_head(rows), "data": data}]}).encode())


def _oip_binary(rows: NDArray[np.float32]) -> Body:
    content = rows.astype("<f4").tobytes()
    tensor = {**_oip_head(rows), "parameters": {"binary_data_size": len(content)}}
    outputs = [
        {"name": n, "parameters": {"binary_data": True}} for n in ("top_scores", "top_labels")
    ]
    head = json.dumps({"inputs": [tensor], "outputs": outputs}).encode()
    headers = {"content-type": OCTETS, "inference-header-content-length": str(len(head))}
    return Body(head + content, headers)


def _read_ours(_: Any, body: bytes) -> Best:  # noqa: ANN401 - headers
    rows = json.loads(body)["predictions"]
    labels = [[int(label.partition("-")[2]) for label in row["labels"]] for row in rows]
    return np.array(labels), np.array([row["scores"] for row in rows], np.float32)


def _read_oip(headers: Any, body: bytes) -> Best:  # noqa: ANN401 - headers
    length = int(headers.get("inference-header-content-length", len(body)))
    arrays, start = {}, length
    for output in json.loads(body[:length])["outputs"]:
        dtype = {"FP32": "<f4", "INT64": "<i8"}[output["datatype"]]
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            values = np.array(output["data"], dtype)
        else:
            values = np.frombuffer(body[start : start + size], dtype)
            start += size
        arrays[output["name"]] = values.reshape(output["shape"])
    return arrays["top_labels"], arrays["top_scores"]


def _read_bento(_: Any, body: bytes) -> Best:  # noqa: ANN401 - headers
    both = np.array(json.loads(body))
    return both[:, :TOP_K].astype(np.int64), both[:, TOP_K:].astype(np.float32)


def _read_lit(_: Any, body: bytes) -> Best:  # noqa: ANN401 - headers
    answer = json.loads(body)
    return np.array(answer["labels"]), np.array(answer["scores"], np.float32)


TRITON_CONFIG = f"""
name: "network"
backend: "python"
max_batch_size: 64
input [{{ name: "features" data_type: TYPE_FP32 dims: [ {WIDTH} ] }}]
output [
  {{ name: "top_scores" data_type: TYPE_FP32 dims: [ {TOP_K} ] }},
  {{ name: "top_labels" data_type: TYPE_INT64 dims: [ {TOP_K} ] }}
]
dynamic_batching {{ }}
instance_group [{{ kind: KIND_CPU count: COUNT }}]
"""


def _start_triton(setting: Setting) -> tuple[list[str], dict[str, str]]:
    site = next((setting.folder / "env" / "lib").glob("python3*")) / "site-packages"
    version = site.parent.name.removeprefix("python")
    home = setting.folder / "tritonserver"
    if not home.exists():
        shutil.copytree(site / "pytriton" / "tritonserver", home)
        stub = home / "python_backend_stubs" / version / "triton_python_backend_stub"
        shutil.copy(stub, home / "backends" / "python")
    model = setting.folder / "models" / "network"
    (model / "1").mkdir(parents=True, exist_ok=True)
    (model / "config.pbtxt").write_text(TRITON_CONFIG.replace("COUNT", str(setting.workers)))
    shutil.copy(HERE / "peers" / "triton_model.py", model / "1" / "model.py")
    shutil.copy(setting.graph, model.parent / "model.onnx")
    command = [
        home / "bin" / "tritonserver",
        f"--model-repository={model.parent}",
        f"--backend-directory={home / 'backends'}",
        f"--http-port={setting.port}",
        "--http-address=127.0.0.1",
        "--allow-grpc=false",
        "--allow-metrics=false",
        "--log-warning=false",
        "--log-info=false",
    ]
    libraries = [site / "nvidia_pytriton.libs", site / "pytriton" / "tritonserver" / "lib"]
    environment = {
        "PYTHONPATH": str(site),
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
        "PATH": f"{setting.python.parent}{os.pathsep}{os.environ['PATH']}",
    }
    return [str(part) for part in command], environment


def _start_mlserver(setting: Setting) -> tuple[list[str], dict[str, str]]:
    model = setting.folder / "models"
    model.mkdir(exist_ok=True)
    shutil.copy(HERE / "peers" / "mlserver_model.py", model)
    about = {
        "name": "network",
        "implementation": "mlserver_model.Network",
        "max_batch_size": 64,
        "max_batch_time": 0.001,
    }
    server = {
        "host": "127.0.0.1",
        "http_port": setting.port,
        "grpc_port": setting.port + 1,
        "metrics_port": setting.port + 2,
        "parallel_workers": setting.workers,
        "debug": False,
    }
    (model / "model-settings.json").write_text(json.dumps(about))
    (model / "settings.json").write_text(json.dumps(server))
    command = [str(setting.python.parent / "mlserver"), "start", str(model)]
    return command, {"GRAPH": str(setting.graph), "PYTHONPATH": str(model)}


def _start_bentoml(setting: Setting) -> tuple[list[str], dict[str, str]]:
    command = [str(setting.python.parent / "bentoml"), "serve", "bentoml_service:Network"]
    command += ["--host", "127.0.0.1", "--port", str(setting.port)]
    command += ["--working-dir", str(HERE / "peers")]
    return command, {
        "GRAPH": str(setting.graph),
        "WORKERS": str(setting.workers),
        "BENTOML_HOME": str(setting.folder / "home"),
        "BENTOML_DO_NOT_TRACK": "True",
    }


def _start_litserve(setting: Setting) -> tuple[list[str], dict[str, str]]:
    command = [str(setting.python), str(HERE / "peers" / "litserve_server.py")]
    return command, {
        "GRAPH": str(setting.graph),
        "PORT": str(setting.port),
        "WORKERS": str(setting.workers),
    }


def _start_noop(setting: Setting) -> tuple[list[str], dict[str, str]]:
    command = [sys.executable, "-m", "uvicorn", "benchmarks.serving.peers.noop:app"]
    command += ["--port", str(setting.port), "--no-access-log", "--log-level", "error"]
    command += ["--loop", "uvloop", "--http", "httptools", "--lifespan", "off"]
    return command, {"PYTHONPATH": str(ROOT)}


def install(packages: Sequence[str], folder: Path, python: str) -> Path:
    """Make an environment with packages, once; its Python. Without packages: this one's."""
    if not packages:
        return Path(sys.executable)
    target = folder / "env" / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([python, "-m", "venv", str(folder / "env")], check=True)
        command = [str(target), "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(command, check=True)
        done.touch()
    return target
