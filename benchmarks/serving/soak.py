"""`python -m benchmarks.serving.soak`: full load for a while, every answer checked, memory watched.

python -m benchmarks.serving.soak [--minutes 10] [--workers 1]

Rows as JSON, one and many, with thresholds, as arrays and in the Open Inference Protocol; beside
them mistakes and the routes for people. Connections are opened anew for each part. Prints the
errors, the wrong answers, p99 of the first and the last part, and how fast memory grows.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import tyro
from numpy.typing import NDArray

from benchmarks.serving import model
from benchmarks.serving.connections import Seen, load, posted
from benchmarks.serving.running import TOLERANCE, Running, free_port, started
from benchmarks.serving.servers import Best, Setting, our_json, ours

CONNECTIONS = 32
PART_SECONDS = 60.0
LOOK_SECONDS = 2.0
MANY_ROWS = 16
OIP = "/v2/models/network/infer"
# Mistakes and routes for people, with the status that each must have.
ASIDE: tuple[tuple[str, str, bytes | None, int], ...] = (
    ("POST", "/predict", b"{", 400),
    ("POST", "/predict", b'{"inputs": [[1, 2]]}', 422),
    ("POST", "/predict", b'{"inputs": [[1]], "model": "nobody"}', 404),
    ("POST", OIP, b'{"inputs": []}', 422),
    ("GET", "/models/network", None, 200),
    ("GET", "/metrics", None, 200),
    ("GET", "/compare", None, 200),
    ("GET", "/nothing", None, 404),
    ("DELETE", "/predict", None, 405),
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How long, and how many processes answer."""

    minutes: float = 10.0
    workers: int = 1

    @property
    def part_seconds(self) -> float:
        """Of each part: a minute, or a quarter of the whole."""
        return min(PART_SECONDS, 15.0 * self.minutes)


@dataclass
class Soak:
    """What was seen."""

    parts: list[Seen] = field(default_factory=list)
    aside: int = 0
    aside_wrong: int = 0
    samples: list[tuple[float, float]] = field(default_factory=list)
    """Seconds, and MB resident in all processes of the server."""

    @property
    def answers(self) -> int:
        """Requests that were answered as they should be, were they right."""
        return sum(part.statuses[200] for part in self.parts) + self.aside

    @property
    def errors(self) -> int:
        """Answers of any other status, and wrong ones."""
        others = sum(sum(part.statuses.values()) - part.statuses[200] for part in self.parts)
        return others + sum(part.wrong for part in self.parts) + self.aside_wrong

    @property
    def settled(self) -> NDArray[np.float64]:
        """The samples after the first part, in which caches fill; (n, 2) of minutes and MB."""
        return np.array([(at / 60, mb) for at, mb in self.samples if at > self.parts[0].seconds])

    @property
    def slope(self) -> float:
        """MB a minute, by least squares."""
        minutes, megabytes = self.settled.T
        return float(np.polyfit(minutes, megabytes, 1)[0])


@dataclass(frozen=True)
class Asked:
    """One request of the load, and what its answer must hold."""

    wire: bytes
    best: Best
    is_oip: bool = False

    def is_right(self, body: bytes) -> bool:
        """Whether every row has its labels and scores."""
        answer = orjson.loads(body)
        labels, scores = _of_oip(answer) if self.is_oip else _of_ours(answer)
        return bool(
            labels == self.best[0].tolist()
            and np.allclose(scores, self.best[1], rtol=0, atol=TOLERANCE)
        )


def _of_ours(answer: dict[str, Any]) -> tuple[list[list[int]], Any]:
    rows = answer["predictions"]
    numbers = [[int(name.removeprefix("label-")) for name in row["labels"]] for row in rows]
    return numbers, [row["scores"] for row in rows]


def _of_oip(answer: dict[str, Any]) -> tuple[list[list[int]], Any]:
    outputs = {one["name"]: one["data"] for one in answer["outputs"]}
    shape = (-1, model.TOP_K)
    labels = np.reshape(outputs["top_labels"], shape).tolist()
    return labels, np.reshape(outputs["top_scores"], shape)


def requests_of(graph: Path) -> list[Asked]:
    """Requests of all kinds, and what ONNX Runtime alone answers to them."""
    session, k = model.session(graph), np.array(model.TOP_K, np.int64)
    asked = []
    for seed in range(model.BODIES):
        for count in (1, MANY_ROWS):
            rows = model.rows(count, seed=seed)
            best = session.run(["top_labels", "top_scores"], {"features": rows, "k": k})
            body = our_json(rows).content
            limited = {**orjson.loads(body), "top_k": model.TOP_K, "threshold": 0.0}
            asked += [
                Asked(posted(body), best),
                Asked(posted(orjson.dumps(limited)), best),
                Asked(_as_bytes(rows), best),
                Asked(posted(_oip_body(rows), OIP), best, is_oip=True),
            ]
    return asked


def _as_bytes(rows: NDArray[np.float32]) -> bytes:
    path = f"/predict?top_k={model.TOP_K}"
    return posted(rows.tobytes(), path).replace(b"application/json", b"application/octet-stream", 1)


def _oip_body(rows: NDArray[np.float32]) -> bytes:
    tensor = {"name": "features", "datatype": "FP32", "shape": list(rows.shape)}
    return orjson.dumps(
        {
            "inputs": [{**tensor, "data": rows.ravel().tolist()}],
            "outputs": [{"name": "top_labels"}, {"name": "top_scores"}],
            "parameters": {"top_k": model.TOP_K},
        }
    )


def measure(options: Options, folder: Path) -> Soak:
    """Load a server, and look at it and ask it other things meanwhile."""
    bundle = model.write(folder)
    asked = requests_of(folder / "model.onnx")
    setting = Setting(folder, Path(sys.executable), bundle, bundle, free_port(), options.workers)
    soak = Soak()
    with started(ours("protocol"), setting) as running, _beside(running, soak):
        end = time.monotonic() + 60 * options.minutes
        while time.monotonic() < end:
            soak.parts.append(
                load(
                    running.port,
                    [one.wire for one in asked],
                    CONNECTIONS,
                    lambda seen: seen.seconds >= options.part_seconds,
                    lambda number, body: asked[number].is_right(body),
                )
            )
    return soak


@contextmanager
def _beside(running: Running, soak: Soak) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=_look, args=(running, soak, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _look(running: Running, soak: Soak, stop: threading.Event) -> None:
    begun = time.monotonic()
    while not stop.wait(LOOK_SECONDS):
        for method, path, body, status in ASIDE:
            answer = httpx.request(method, running.url + path, content=body, timeout=30)
            soak.aside += 1
            soak.aside_wrong += answer.status_code != status
        # Not the proportional set: it grows when others end that share the libraries.
        soak.samples.append((time.monotonic() - begun, sum(running.residents_mb())))


def _halves(soak: Soak) -> str:
    """Whether growth goes on: the highest of the first half and of the second."""
    megabytes = soak.settled[:, 1]
    middle = len(megabytes) // 2
    first, second = megabytes[:middle].max(), megabytes[middle:].max()
    return f"at most {first:.1f} MB in the first half, {second:.1f} in the second"


def main(options: Options) -> None:
    """Measure and print; ends with 1 if any answer was wrong."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    with tempfile.TemporaryDirectory() as folder:
        soak = measure(options, Path(folder))
    first, last = soak.parts[0], soak.parts[-1]
    megabytes = soak.settled[:, 1]
    print(
        f"{soak.answers:,} answers in {options.minutes:g} minutes, {soak.errors} errors; p99 "
        f"{first.p99:.1f} ms in the first {options.part_seconds:.0f} s and {last.p99:.1f} ms in "
        f"the last; memory {megabytes.min():.1f} to {megabytes.max():.1f} MB after the first, "
        f"{soak.slope:+.3f} MB a minute ({_halves(soak)})"
    )
    sys.exit(bool(soak.errors))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
