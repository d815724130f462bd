"""Start a server for some bundles, ask each of them, and compare scores and speed.

python clients/python/examples/demo.py runs/demo/ce-0/model.bundle runs/demo/seal-0/model.bundle
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from export.bundle import Bundle, load_bundle
from labelwright_client import Client

REQUESTS = 300


@contextmanager
def running_server(bundles: list[Path]) -> Iterator[str]:
    """Serve the bundles on a free port; yield the address; stop the server in the end."""
    command = [sys.executable, "-m", "serve", *map(str, bundles), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
        try:
            assert server.stdout is not None  # noqa: S101 - by PIPE above
            ready = server.stdout.readline()
            if not ready:
                sys.exit("the server did not start")
            yield ready.split()[-1]
        finally:
            server.terminate()


def request_milliseconds(client: Client, bundle: Bundle) -> list[float]:
    """Time one-row requests, one after the other, seen from the client."""
    rows = bundle.probe["features"].tolist()
    times = []
    for i in track(range(REQUESTS), f"asking {bundle.manifest.name}", transient=True):
        started = time.perf_counter()
        client.predict([rows[i % len(rows)]], model=bundle.manifest.name)
        times.append(1000 * (time.perf_counter() - started))
    return times


def main() -> None:
    """Print a prediction, the comparison, and what to do next."""
    paths = [Path(argument) for argument in sys.argv[1:]]
    bundles = [load_bundle(path) for path in paths]
    console = Console()
    table = Table(title="methods compared", title_justify="left")
    for column in ("model", "example-F1", "micro-F1", "P@1", "p50 ms", "p99 ms"):
        table.add_column(column, justify="left" if column == "model" else "right")
    with running_server(paths) as url, Client(url) as client:
        best = bundles[-1]
        prediction = client.predict(
            best.probe["features"][:1].tolist(), top_k=5, model=best.manifest.name
        )[0]
        console.print(f"\ntop 5 of {best.manifest.name} for one test row")
        for label, score in zip(prediction.labels, prediction.scores, strict=True):
            console.print(f"  {label:<12} {score:.3f}  {'█' * round(30 * score)}", highlight=False)
        for bundle in bundles:
            times = request_milliseconds(client, bundle)
            cuts = statistics.quantiles(times, n=100)
            scores = bundle.manifest.test_scores
            shown = (scores["example_f1"], scores["micro_f1"], scores["precision@1"])
            table.add_row(
                bundle.manifest.name,
                *(f"{score:.3f}" for score in shown),
                f"{statistics.median(times):.2f}",
                f"{cuts[98]:.2f}",
            )
    console.print()
    console.print(table)
    print(
        f"\nscores: test rows, threshold 0.5; times: {REQUESTS} one-row requests, client included"
        f"\n\ngo on with\n  . .venv/bin/activate"
        f"\n  python -m serve {' '.join(map(str, paths))}      # then open http://127.0.0.1:8000"
        f"\n  python -m train list                # methods and data sets"
        f"\n  python -m train seal --dataset my.csv --label-columns tags"
    )


if __name__ == "__main__":
    main()
