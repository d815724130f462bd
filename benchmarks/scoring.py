"""Rows a second of `python -m serve score`, against ONNX Runtime alone and a loop with pandas.

python -m benchmarks.scoring

The network of the serving benchmarks scores the same rows in the same batches:
  raw     ONNX Runtime on rows that are in memory, one thread, answers thrown away
  score   `serve.score` in one process: file in, chunks of Parquet out, synced to disk
  pandas  a plain loop: pandas reads the file, ONNX Runtime scores, pandas writes Parquet
Loading the model is left out of all three. Rounds are interleaved, so that other work on the
machine hits all; ratios are medians over rounds, on the clock and of CPU time, which other work
changes less. Then the whole command with one and with two workers, loading included.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pandas as pd

from benchmarks.serving import model
from export.bundle import read_manifest
from serve.score.plan import CHUNKS, Job, all_chunks
from serve.score.scorer import BATCH_ROWS, Scorer

TOP_K = 5
CHUNK_ROWS = 10_000
MORE = 4
"""Times as many rows for whole commands, whose start takes seconds."""


def write_inputs(folder: Path, rows: int) -> dict[str, Path]:
    """The same rows in the formats that are compared."""
    array = model.rows(rows)
    frame = pd.DataFrame(array, columns=[f"f{place}" for place in range(array.shape[1])])
    paths = {ending: folder / f"rows.{ending}" for ending in ("npy", "parquet", "csv")}
    np.save(paths["npy"], array)
    frame.to_parquet(paths["parquet"], row_group_size=CHUNK_ROWS)
    frame.to_csv(paths["csv"], index=False)
    return paths


def run_raw(session: ort.InferenceSession, array: np.ndarray) -> None:
    k = np.array(TOP_K, dtype=np.int64)
    for start in range(0, len(array), BATCH_ROWS):
        feed = {"features": array[start : start + BATCH_ROWS], "k": k}
        session.run(["top_scores", "top_labels"], feed)


def run_score(bundle: Path, path: Path, out: Path) -> Callable[[], None]:
    """A job whose bundle is loaded; cutting the file into chunks is part of what is measured."""
    (out / CHUNKS).mkdir(parents=True, exist_ok=True)
    job = Job(
        bundle=bundle, version=read_manifest(bundle).version, inputs=(path,),
        folder=out, format="parquet", chunk_rows=CHUNK_ROWS, top_k=TOP_K,
        threshold=None, text_column="text",
    )  # fmt: skip
    scorer = Scorer(job)

    def run() -> None:
        for chunk in all_chunks(job):
            scorer.write(chunk)

    return run


def run_pandas(session: ort.InferenceSession, path: Path, out: Path) -> None:
    names = np.array(model.label_names())
    if path.suffix == ".npy":
        frame = pd.DataFrame(np.load(path))
    else:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    array = frame.to_numpy(dtype=np.float32)
    k, labels, scores = np.array(TOP_K, dtype=np.int64), [], []
    for start in range(0, len(array), BATCH_ROWS):
        feed = {"features": array[start : start + BATCH_ROWS], "k": k}
        best, columns = session.run(["top_scores", "top_labels"], feed)
        labels += names[columns].tolist()
        scores += best.tolist()
    pd.DataFrame({"labels": labels, "scores": scores}).to_parquet(out)


def seconds(run: Callable[[], None]) -> tuple[float, float]:
    """On the clock, and of CPU time in all threads of this process."""
    started, worked = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - started, time.process_time() - worked


def compare(bundle: Path, path: Path, rounds: int, out: Path) -> None:
    session = model.session(bundle / "model.onnx")
    array = np.load(path.with_suffix(".npy"))
    contestants: dict[str, Callable[[], None]] = {
        "raw": lambda: run_raw(session, array),
        "score": run_score(bundle, path, out),
        "pandas": lambda: run_pandas(session, path, out / "pandas.parquet"),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            times[name].append(seconds(run))
    cells = [f"{path.suffix:9}"]
    for name in contestants:
        cells.append(f"{len(array) / statistics.median(t for t, _ in times[name]):9,.0f}")
    for name in ("raw", "pandas"):
        for kind in (0, 1):
            pairs = zip(times[name], times["score"], strict=True)
            cells.append(f"{statistics.median(one[kind] / ours[kind] for one, ours in pairs):9.2f}")
    print(" ".join(cells))


def compare_workers(bundle: Path, path: Path, rounds: int) -> None:
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for workers, taken in times.items():
            with tempfile.TemporaryDirectory() as folder:
                words = ["score", bundle, "--input", path, "--output", folder]
                command = [sys.executable, "-m", "serve", *words, "--workers", workers]
                started = time.perf_counter()
                subprocess.run(list(map(str, command)), check=True, capture_output=True)
                taken.append(time.perf_counter() - started)
    ratio = statistics.median(one / two for one, two in zip(times[1], times[2], strict=True))
    one, two = (statistics.median(taken) for taken in times.values())
    print(f"the command: 1 worker {one:.1f} s, 2 workers {two:.1f} s, {ratio:.2f} times as fast")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle = model.write(folder / "model")
        paths = write_inputs(folder, options.rows)
        print(f"{options.rows:,} rows of {model.WIDTH} numbers, {model.LABELS} labels, rows/s:")
        print("input           raw     score    pandas      /raw   of CPU   /pandas   of CPU")
        for path in paths.values():
            compare(bundle, path, options.rounds, folder / "out")
        np.save(folder / "more.npy", np.concatenate([np.load(paths["npy"])] * MORE))
        compare_workers(bundle, folder / "more.npy", options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
