"""Compare the metrics with scikit-learn and napkinXC: `python -m benchmarks.metrics`.

Data of the shape and density of the Delicious test part. Both sides compute the same number, which
is checked, in turns within one run; the fastest of the rounds counts. Set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from napkinxc import metrics as napkin
from numpy.typing import NDArray
from scipy import sparse
from sklearn import metrics as sk

from train import metrics
from train.thresholds import per_label_thresholds, tuned_threshold

ROWS, LABELS, LABELS_PER_ROW = 3185, 983, 19
WIDE_ROWS, WIDE_LABELS = 100_000, 325_000

Job = Callable[[], float]


@dataclass(frozen=True)
class Data:
    """One scored set of rows in the forms that the libraries want."""

    scores: NDArray[np.float32]
    targets: sparse.csr_array
    dense: NDArray[np.uint8]
    predicted: NDArray[np.bool_]
    counts: NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    data = delicious_like(np.random.default_rng(0))
    density = data.targets.nnz / ROWS
    print(f"{ROWS} rows x {LABELS} labels, {density:.1f} labels a row; ms: ours, theirs")
    compare_with_scikit_learn(data, rounds)
    compare_with_napkinxc(data, rounds)
    compare_top_k(data, rounds)
    time_thresholds(data, rounds)
    measure_wide(rounds)


def delicious_like(rng: np.random.Generator) -> Data:
    share = rng.pareto(1.2, LABELS) + 0.2
    for _ in range(50):
        share = np.minimum(share * LABELS_PER_ROW / share.sum(), 0.4)
    dense = (rng.random((ROWS, LABELS)) < share).astype(np.uint8)
    dense[rng.integers(0, ROWS, LABELS), np.arange(LABELS)] = 1
    logits = rng.normal(-4, 1.3, (ROWS, LABELS)) + 2.5 * dense
    scores = (1 / (1 + np.exp(-logits))).astype(np.float32)
    return Data(
        scores=scores,
        targets=sparse.csr_array(dense),
        dense=dense,
        predicted=metrics.predict(scores, 0.3),
        counts=dense.sum(axis=0, dtype=np.int64) * 4,
    )


def jobs(data: Data) -> dict[str, tuple[Job, Job]]:
    """Each metric by its key in `evaluate`: ours alone, and scikit-learn's."""
    s, t, y, p = data.scores, data.targets, data.dense, data.predicted
    pairs: dict[str, tuple[Job, Job]] = {
        "example_f1": (
            lambda: metrics.example_f1(p, t),
            lambda: sk.f1_score(y, p, average="samples", zero_division=0),
        ),
        "micro_f1": (lambda: metrics.micro_f1(p, t), lambda: sk.f1_score(y, p, average="micro")),
        "macro_f1": (
            lambda: metrics.macro_f1(p, t),
            lambda: sk.f1_score(y, p, average="macro", zero_division=0),
        ),
        "hamming_accuracy": (
            lambda: metrics.hamming_accuracy(p, t),
            lambda: 1 - sk.hamming_loss(y, p),
        ),
        "subset_accuracy": (lambda: metrics.subset_accuracy(p, t), lambda: sk.accuracy_score(y, p)),
        "map_by_label": (
            lambda: metrics.map_by_label(s, t),
            lambda: sk.average_precision_score(y, s, average="macro"),
        ),
        "map_by_row": (
            lambda: metrics.map_by_row(s, t),
            lambda: sk.average_precision_score(y, s, average="samples"),
        ),
        "lrap": (
            lambda: metrics.lrap(s, t),
            lambda: sk.label_ranking_average_precision_score(y, s),
        ),
        "coverage_error": (lambda: metrics.coverage_error(s, t), lambda: sk.coverage_error(y, s)),
        "ranking_loss": (lambda: metrics.ranking_loss(s, t), lambda: sk.label_ranking_loss(y, s)),
    }
    for k in (1, 3, 5):
        pairs[f"ndcg@{k}"] = (
            lambda k=k: metrics.ndcg_at_k(metrics.top_k(s, k), t, k=k),
            lambda k=k: sk.ndcg_score(y, s, k=k),
        )
    return pairs


def compare_with_scikit_learn(data: Data, rounds: int) -> None:
    """Print each metric, then our whole suite, slices included, against the sum of theirs."""
    pairs = jobs(data)
    values = evaluate_all(data)
    for name, (ours, theirs) in pairs.items():
        expected = theirs()
        check(name, ours(), expected)
        check(name, values[name], expected)
    flat = [job for pair in pairs.values() for job in pair]
    suite, *times = interleaved(rounds, lambda: evaluate_all(data), *flat)
    for name, ours, theirs in zip(pairs, times[::2], times[1::2], strict=True):
        report(name, ours, theirs, "scikit-learn")
    label = f"evaluate, {len(values)} values"
    report(label, suite, sum(times[1::2]), f"scikit-learn, {len(pairs)} of them")


def evaluate_all(data: Data) -> dict[str, float]:
    return metrics.evaluate(
        data.scores,
        data.targets,
        thresholds=0.3,
        train_counts=data.counts,
        propensity=metrics.propensities(data.counts, 4 * ROWS),
    )


def compare_with_napkinxc(data: Data, rounds: int) -> None:
    propensity = metrics.propensities(data.counts, 4 * ROWS)
    best, inverse = metrics.top_k(data.scores, 5), 1 / propensity
    true = [row.tolist() for row in np.split(data.targets.indices, data.targets.indptr[1:-1])]
    ranked = best.tolist()
    for name, ours, theirs in (
        (
            "precision@5, ranked",
            lambda: metrics.precision_at_k(best, data.targets, k=5),
            lambda: napkin.precision_at_k(true, ranked, k=5)[-1],
        ),
        (
            "psp@5, ranked",
            lambda: metrics.psp_at_k(best, data.targets, propensity, k=5),
            lambda: napkin.psprecision_at_k(true, ranked, inverse, k=5)[-1],
        ),
    ):
        check(name, ours(), theirs())
        report(name, *interleaved(rounds, ours, theirs), "napkinXC")


def compare_top_k(data: Data, rounds: int) -> None:
    """Deterministic ties against argpartition, which leaves them to chance."""
    wide = np.random.default_rng(1).random((64, WIDE_LABELS), dtype=np.float32)
    for scores in (data.scores, wide):
        times = interleaved(
            rounds, lambda s=scores: metrics.top_k(s, 5), lambda s=scores: argpartition_top(s, 5)
        )
        report(f"top_k 5 of {scores.shape[1]}", *times, "argpartition, ties by chance")


def argpartition_top(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    best = np.argpartition(scores, -k, axis=1)[:, -k:]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
    return np.take_along_axis(best, order, axis=1)


def time_thresholds(data: Data, rounds: int) -> None:
    tuned, exact = interleaved(
        rounds,
        lambda: tuned_threshold(data.scores, data.targets),
        lambda: per_label_thresholds(data.scores, data.targets, fallback=0.3),
    )
    print(f"{'tuned_threshold, 27 candidates':32s}{1e3 * tuned:9.1f}")
    print(f"{'per_label_thresholds, exact':32s}{1e3 * exact:9.1f}")


def measure_wide(rounds: int) -> None:
    """Time and memory of the metrics at k where a dense matrix cannot exist."""
    rng = np.random.default_rng(2)
    columns = np.sort(rng.integers(0, WIDE_LABELS, (WIDE_ROWS, 4)), axis=1)
    indptr = np.arange(WIDE_ROWS + 1) * 4
    ones = np.ones(columns.size, dtype=np.uint8)
    targets = sparse.csr_array((ones, columns.ravel(), indptr), shape=(WIDE_ROWS, WIDE_LABELS))
    targets.sum_duplicates()
    targets.data[:] = 1
    ranked = np.hstack([columns[:, :1], rng.integers(0, WIDE_LABELS, (WIDE_ROWS, 4))])
    counts = np.bincount(targets.indices, minlength=WIDE_LABELS)
    propensity = metrics.propensities(counts, WIDE_ROWS)

    def all_at_k() -> None:
        for k in (1, 3, 5):
            metrics.precision_at_k(ranked, targets, k=k)
            metrics.recall_at_k(ranked, targets, k=k)
            metrics.ndcg_at_k(ranked, targets, k=k)
            metrics.psp_at_k(ranked, targets, propensity, k=k)

    (seconds,) = interleaved(rounds, all_at_k)
    tracemalloc.start()
    all_at_k()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(
        f"{WIDE_ROWS} rows x {WIDE_LABELS} labels, 12 metrics at k: {1e3 * seconds:.0f} ms, "
        f"peak {peak / 1e6:.0f} MB (dense float32: {WIDE_ROWS * WIDE_LABELS * 4 / 1e9:.0f} GB)"
    )


def interleaved(rounds: int, *functions: Callable[[], object]) -> list[float]:
    """Fastest seconds of each function, called in turns."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def check(name: str, value: float, expected: float) -> None:
    # float32 scores tie now and then, where scikit-learn groups and we rank.
    if not np.isclose(value, expected, rtol=1e-4):
        raise SystemExit(f"{name}: ours is {value}, the reference says {expected}")


def report(name: str, ours: float, theirs: float, whose: str) -> None:
    print(f"{name:32s}{1e3 * ours:9.1f}{1e3 * theirs:10.1f}{theirs / ours:8.1f}x  {whose}")


if __name__ == "__main__":
    main()
