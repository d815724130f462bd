"""Texts a second through our server, against ONNX Runtime alone and a plain server on torch.

python -m benchmarks.text_serving

A text encoder (MiniLM, frozen) is trained on generated texts and exported twice, in 32 and in 8
bits. Then rounds over all contestants, a burst each, so that other work on the machine hits all:
ONNX Runtime without a server on one core, in the parts of like length that our server forms; our
server with one worker; with its default, a worker for each core, in 32 and in 8 bits; FastAPI
around a `transformers` pipeline, whose requests run side by side on all cores. Ratios are medians
over rounds; the CPU time of a text tells what cores and other work on the machine hide.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import onnxruntime as ort
from pydantic import BaseModel

from benchmarks.serving.connections import load, posted
from export.bundle import Bundle, load_bundle
from serve.encoders import encoder_of
from serve.inputs import TextRows

TOPICS = {
    "sport": "football match goal team player season coach league",
    "music": "song album guitar band singer concert melody",
    "law": "court judge trial lawyer verdict appeal statute",
    "food": "recipe kitchen oven bread butter sugar taste",
    "space": "rocket orbit planet telescope launch moon star",
}
FILLER = "the a of and with about today people long new small in it was very when"
LENGTHS = (6, 8, 12, 20, 40, 90)
TOP_K = 5
READY_SECONDS = 120


@dataclass(frozen=True)
class Burst:
    """What one contestant did in one burst."""

    texts_per_second: float
    p99: float
    """Seconds of one request."""
    cpu: float
    """Seconds of CPU time for one text, of all threads."""


class Body(BaseModel):
    """What the plain server takes."""

    inputs: list[str]
    top_k: int


def generated(count: int, seed: int) -> list[dict[str, object]]:
    dice = random.Random(seed)  # noqa: S311 - texts, not secrets
    rows = []
    for _ in range(count):
        labels = dice.sample(list(TOPICS), dice.choice([1, 1, 2]))
        words = [
            dice.choice((TOPICS[dice.choice(labels)] if dice.random() < 0.5 else FILLER).split())
            for _ in range(dice.choice(LENGTHS))
        ]
        rows.append({"text": " ".join(words), "labels": labels})
    return rows


def make_bundles(folder: Path) -> tuple[Path, Path]:
    """Train on generated texts; export in 32 and in 8 bits."""
    lines = [json.dumps(row) for row in generated(1500, seed=0)]
    (folder / "topics.jsonl").write_text("\n".join(lines), "utf-8")
    run = ["--encoder", "minilm", "--max-tokens", "128", "--epochs", "10", "--no-progress"]
    _python("-m", "train", "ce", "--dataset", "topics.jsonl", *run, "--out", "run", folder=folder)
    _python("-m", "export", "run/model.pt", "--out", "float32.bundle", folder=folder)
    _python("-m", "export", "run/model.pt", "--out", "int8.bundle", "--int8", folder=folder)
    return folder / "float32.bundle", folder / "int8.bundle"


def _python(*words: str, folder: Path) -> None:
    subprocess.run([sys.executable, *words], cwd=folder, env=environment(), check=True)


def environment() -> dict[str, str]:
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@contextmanager
def running(*words: str) -> Iterator[tuple[str, int]]:
    """Address and process id of a server whose first line ends in its address."""
    with subprocess.Popen(
        [sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True, env=environment()
    ) as server:
        try:
            assert server.stdout is not None  # noqa: S101 - it is a pipe
            address = server.stdout.readline().split()[-1]
            _wait(address)
            yield address, server.pid
        finally:
            server.terminate()


def _wait(address: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{address}/healthz")
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"{address} does not answer")


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of those that it started, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    started = Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()
    return own + sum(map(cpu_seconds, map(int, started)))


def served(
    server: tuple[str, int], requests: list[bytes], texts_each: int, connections: int
) -> Burst:
    """As many answers as there are requests, over so many connections."""
    address, pid = server
    port = int(address.rpartition(":")[2])
    cpu = cpu_seconds(pid)
    seen = load(port, requests, connections, lambda seen: seen.statuses[200] >= len(requests))
    cpu = cpu_seconds(pid) - cpu
    if seen.statuses.keys() != {200}:
        raise RuntimeError(f"{address} answered {dict(seen.statuses)}")
    return Burst(seen.rate * texts_each, seen.p99 / 1e3, cpu / (seen.statuses[200] * texts_each))


def raw(bundle: Bundle, batches: list[list[str]]) -> Burst:
    """Tokenise and run batches as a server does, one thread, nothing else."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(bundle.model_path), options)
    encode = encoder_of(bundle)
    seconds, cpu = [], time.process_time()
    for batch in batches:
        started = time.perf_counter()
        for feed in encode(TextRows(batch)).feeds:
            session.run(["top_scores", "top_labels"], {**feed, "k": np.array(TOP_K)})
        seconds.append(time.perf_counter() - started)
    count = sum(map(len, batches))
    cpu = (time.process_time() - cpu) / count
    return Burst(count / sum(seconds), float(np.quantile(seconds, 0.99)), cpu)


def measure(options: argparse.Namespace, folder: Path) -> None:
    full, small = make_bundles(folder)
    bundle = load_bundle(full)
    texts = [str(row["text"]) for row in generated(options.requests * options.texts, seed=1)]
    groups = [texts[i : i + options.texts] for i in range(0, len(texts), options.texts)]
    bodies = [posted(json.dumps({"inputs": group, "top_k": TOP_K}).encode()) for group in groups]
    at_once = min(64, options.texts * options.connections)
    batches = [texts[i : i + at_once] for i in range(0, len(texts), at_once)]
    with ExitStack() as stack:
        servers = {
            "our server, 1 worker": running("serve", str(full), "--port", "0", "--workers", "1"),
            "our server": running("serve", str(full), "--port", "0"),
            "our server, int8": running("serve", str(small), "--port", "0"),
            "FastAPI + transformers": running("benchmarks.text_serving", "--plain"),
        }
        contestants: dict[str, Callable[[], Burst]] = {
            "onnxruntime alone, 1 core": lambda: raw(bundle, batches)
        }
        for name, server in servers.items():
            started = stack.enter_context(server)
            contestants[name] = partial(served, started, bodies, options.texts, options.connections)
        rounds = [
            {name: burst() for name, burst in contestants.items()} for _ in range(options.rounds)
        ]
    print(f"{options.texts} text(s) a request, {options.connections} connections")
    print("| contestant | texts/s | p99 ms | CPU ms a text | times our server |")
    print("|---|--:|--:|--:|--:|")
    for name in contestants:
        speed = statistics.median(r[name].texts_per_second for r in rounds)
        p99 = statistics.median(r[name].p99 for r in rounds) * 1e3
        ratio = statistics.median(
            r[name].texts_per_second / r["our server"].texts_per_second for r in rounds
        )
        cpu = statistics.median(r[name].cpu for r in rounds) * 1e3
        print(f"| {name} | {speed:.0f} | {p99:.0f} | {cpu:.1f} | {ratio:.2f} |")


def serve_plain() -> None:
    """What a tutorial would write: a pipeline in a route, one request at a time."""
    import socket  # noqa: PLC0415 - only this contestant needs it

    import torch  # noqa: PLC0415
    import uvicorn  # noqa: PLC0415
    from fastapi import FastAPI  # noqa: PLC0415
    from transformers import (  # noqa: PLC0415
        AutoModelForSequenceClassification,
        AutoTokenizer,
        pipeline,
    )

    from train.pretrained import find_encoder  # noqa: PLC0415

    torch.set_num_threads(1)
    folder = find_encoder("minilm")
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(TOPICS))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=TOP_K)

    app = FastAPI()

    @app.get("/healthz")
    def healthz() -> str:
        return "ok"

    @app.post("/predict")
    def predict(body: Body) -> object:
        return classify(
            body.inputs,
            batch_size=len(body.inputs),
            function_to_apply="sigmoid",
            truncation=True,
            max_length=128,
        )

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"serving on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    server.run(sockets=[listener])


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of serving text.")
    parser.add_argument("--plain", action="store_true", help="be the plain server")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=128, help="in one burst")
    parser.add_argument("--texts", type=int, default=1, help="in one request")
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    if options.plain:
        serve_plain()
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(options, Path(folder))


if __name__ == "__main__":
    main()
