"""The best labels of a large table, found by the bundle and by faiss on the same vectors.

Every contestant goes from rows to the best labels, with the same encoder, in one interleaved run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from export.bundle import INDEX
from serve.inputs import Rows
from serve.predictor import OnnxPredictor

TOP_K = 10
BATCHES = (1, 32)
WHOLE = ("exact", "faiss Flat")
"""Ways that read the whole table for every call."""
CALLS = 3
"""Calls of each contestant in a round."""

Find = Callable[[Rows], NDArray[np.int64]]
"""Rows -> their best labels (rows, TOP_K)."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """How fast one contestant found the best labels, and which."""

    way: str
    batch: int
    seconds: float
    """Median of one call."""
    ratio: float
    """To the time of faiss Flat."""
    recall: float
    """Share of the labels that faiss Flat found."""
    gigabytes_per_second: float | None
    """The table, read once in that time; None for ways that do not read all of it."""


def race(predictor: OnnxPredictor, rounds: int, threads: int) -> list[Found]:
    """Measure a bundle with a large label table beside faiss; nothing for other bundles.

    Raises:
        ModuleNotFoundError: faiss is not installed.
    """
    table = predictor.bundle.label_vectors()
    if table is None or predictor.embedder is None:
        return []
    contestants = dict(_contestants(predictor, table, threads))
    results = []
    for batch in BATCHES:
        rows = predictor.probe_rows(batch)
        answers = {way: find(rows) for way, find in contestants.items()}
        seconds: dict[str, list[float]] = {way: [] for way in contestants}
        for _ in range(rounds):
            for way, find in contestants.items():
                seconds[way] += [_timed(find, rows) for _ in range(CALLS)]
        flat = statistics.median(seconds["faiss Flat"])
        for way, times in seconds.items():
            median = statistics.median(times)
            results.append(
                Found(
                    way=way,
                    batch=batch,
                    seconds=median,
                    ratio=median / flat,
                    recall=_recall(answers[way], answers["faiss Flat"]),
                    gigabytes_per_second=table.nbytes / median / 1e9 if way in WHOLE else None,
                )
            )
    return results


def race_table(name: str, results: Sequence[Found]) -> Table:
    """One line for each contestant and batch size."""
    table = Table(title=f"{name}: the {TOP_K} best labels", title_justify="left")
    table.add_column("way")
    for column in ("rows", "ms", "times Flat", "recall", "GB/s of the table"):
        table.add_column(column, justify="right")
    for found in results:
        table.add_row(
            found.way,
            str(found.batch),
            f"{found.seconds * 1e3:.2f}",
            f"{found.ratio:.2f}",
            f"{found.recall:.3f}",
            "" if found.gigabytes_per_second is None else f"{found.gigabytes_per_second:.1f}",
        )
    return table


def _contestants(
    predictor: OnnxPredictor, table: NDArray[np.float32], threads: int
) -> Iterator[tuple[str, Find]]:
    import faiss  # noqa: PLC0415 - an extra that servers of small models do not need

    faiss.omp_set_num_threads(threads)
    bundle, embedder = predictor.bundle, predictor.embedder
    search = bundle.manifest.search
    yield (search.kind if search else "exact"), lambda rows: predictor.run(rows, TOP_K).top_labels

    def by(index: Any, **options: Any) -> Find:  # noqa: ANN401 - faiss has no types
        def find(rows: Rows) -> NDArray[np.int64]:
            assert embedder is not None  # noqa: S101 - `race` looked
            labels: NDArray[np.int64] = index.search(embedder.run(rows).vectors, TOP_K, **options)[
                1
            ]
            return labels

        return find

    flat: Any = faiss.IndexFlatIP(table.shape[1])
    for start in range(0, len(table), 2**16):
        flat.add(np.ascontiguousarray(table[start : start + 2**16]))
    yield "faiss Flat", by(flat)
    if search is not None and bundle.has(INDEX):
        yield "exact", _exact(predictor)
        index = faiss.read_index(str(bundle.path / INDEX))
        cells: Any = faiss.SearchParametersIVF
        yield "faiss IVF", by(index, params=cells(nprobe=search.nprobe))


def _exact(predictor: OnnxPredictor) -> Find:
    return lambda rows: predictor.run_exactly(rows, TOP_K).top_labels


def _timed(find: Find, rows: Rows) -> float:
    started = time.perf_counter()
    find(rows)
    return time.perf_counter() - started


def _recall(found: NDArray[np.int64], best: NDArray[np.int64]) -> float:
    shares = [
        len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), best.tolist(), strict=True)
    ]
    return statistics.mean(shares)
