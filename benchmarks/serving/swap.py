"""`python -m benchmarks.serving.swap`: a model is replaced under full load, every answer checked.

python -m benchmarks.serving.swap [--requests 100000] [--swaps 20]

Each answer says which version gave it, and must be what the graph of that version says. Prints the
errors, the wrong answers, the versions that answered, and the p99 beside that without a change.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import orjson
import tyro

from benchmarks.serving import model
from benchmarks.serving.connections import Seen, load, posted
from benchmarks.serving.running import TOLERANCE, free_port, started
from benchmarks.serving.servers import Best, Setting, our_json, ours

CONNECTIONS = 64
LOOK_SECONDS = 0.1
"""Between two looks at whether the last version answers already."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How many requests and changes at least."""

    requests: int = 100_000
    swaps: int = 20
    workers: int = 2


@dataclass
class Swapping:
    """Versions 1, 2, ... of one model, put into a repository one after another."""

    folder: Path
    count: int
    put: int = 0
    answered: Counter[str] = field(default_factory=Counter)
    expected: dict[str, list[Best]] = field(default_factory=dict)

    @property
    def repository(self) -> Path:
        """What the server follows."""
        return self.folder / "repository"

    def prepare(self) -> None:
        """Write all versions, and what each answers to every request; put the first."""
        (self.repository / "network").mkdir(parents=True)
        k = np.array(model.TOP_K, np.int64)
        for version in range(1, self.count + 2):
            home = self.folder / str(version)
            model.write(home, seed=version)
            session = model.session(home / "model.onnx")
            self.expected[str(version)] = [
                tuple(session.run(["top_labels", "top_scores"], {"features": rows, "k": k}))
                for rows in inputs()
            ]
        self.put_next()

    def put_next(self) -> None:
        """Move the next version into place; the server serves the newest."""
        self.put += 1
        bundle = self.folder / str(self.put) / "network.bundle"
        bundle.rename(self.repository / "network" / str(self.put))

    def put_rest(self, stop: threading.Event) -> None:
        """Put each once the one before has answered, so that none is passed over."""
        while self.put <= self.count and not stop.wait(LOOK_SECONDS):
            if str(self.put) in self.answered:
                self.put_next()

    def is_right(self, number: int, body: bytes) -> bool:
        """Whether an answer is that of the version that it names."""
        answer = orjson.loads(body)
        version = answer["model"]["version"]
        self.answered[version] += 1
        labels, scores = self.expected[version][number]
        row = answer["predictions"][0]
        names = [f"label-{column}" for column in labels[0].tolist()]
        return row["labels"] == names and all(
            abs(got - wanted) <= TOLERANCE
            for got, wanted in zip(row["scores"], scores[0].tolist(), strict=True)
        )

    def is_over(self, seen: Seen, requests: int) -> bool:
        """All versions have answered, and enough."""
        return len(self.answered) > self.count and seen.statuses[200] >= requests


def inputs() -> list[np.ndarray]:
    """The rows of all requests."""
    return [model.rows(1, seed=number) for number in range(model.BODIES)]


def measure(options: Options, folder: Path) -> tuple[Seen, Seen, Swapping]:
    """Without a change, and with all of them."""
    swapping = Swapping(folder, options.swaps)
    swapping.prepare()
    requests = [posted(our_json(rows).content) for rows in inputs()]
    port, python = free_port(), Path(sys.executable)
    setting = Setting(folder, python, swapping.repository, folder, port, options.workers)
    with started(ours("protocol"), setting):
        calm = _load(port, requests, swapping, lambda seen: seen.seconds >= 3.0)
        stop = threading.Event()
        thread = threading.Thread(target=swapping.put_rest, args=(stop,))
        thread.start()
        try:
            changed = _load(
                port, requests, swapping, lambda seen: swapping.is_over(seen, options.requests)
            )
        finally:
            stop.set()
            thread.join()
    return calm, changed, swapping


def _load(
    port: int, requests: Sequence[bytes], swapping: Swapping, is_over: Callable[[Seen], bool]
) -> Seen:
    return load(port, requests, CONNECTIONS, is_over, swapping.is_right)


def main(options: Options) -> None:
    """Measure and print; ends with 1 if anything was wrong."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        calm, changed, swapping = measure(options, Path(folder))
    errors = sum(changed.statuses.values()) - changed.statuses[200]
    print(
        f"{changed.statuses[200]:,} requests while the model was replaced {options.swaps} times: "
        f"{errors} errors, {changed.wrong} wrong answers, {len(swapping.answered)} versions "
        f"answered; p99 {changed.p99 / calm.p99:.2f} times that without a change "
        f"({time.monotonic() - begun:.0f} s)"
    )
    sys.exit(bool(errors or changed.wrong))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
