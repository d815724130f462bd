"""ML-kNN: fit on the training rows and predict the test rows, against scikit-multilearn-ng.

python -m benchmarks.mlknn [--dataset delicious] [--fraction 0.1]

One thread each. Both find neighbours by brute force; theirs then counts labels in Python loops.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table
from scipy import sparse
from skmultilearn.adapt import MLkNN
from threadpoolctl import threadpool_limits

from train.batches import Rows
from train.data import load_dataset, make_split
from train.errors import run_command
from train.loop import predict
from train.methods import mlknn
from train.problem import Problem, make_problem


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to measure."""

    dataset: str = "delicious"
    k: int = 10
    fraction: float = 0.1
    """Share of the training rows, and of the test rows; with all of them the other library needs
    many minutes."""


def ours(problem: Problem, k: int) -> tuple[float, float, np.ndarray]:
    started = time.perf_counter()
    predictor = mlknn.fit(mlknn.Config(k=k), problem)
    fitted = time.perf_counter()
    scores = predict(predictor, problem.test.x, problem.device)
    return fitted - started, time.perf_counter() - fitted, scores


def theirs(problem: Problem, k: int) -> tuple[float, float, np.ndarray]:
    def dense(rows: Rows) -> np.ndarray:
        return rows.take(torch.arange(len(rows))).numpy()

    x, y, test = dense(problem.train.x), problem.train.targets, dense(problem.test.x)
    method = MLkNN(k=k, ignore_first_neighbours=1)
    started = time.perf_counter()
    method.fit(x, sparse.lil_matrix(y))
    fitted = time.perf_counter()
    method.ignore_first_neighbours = 0  # or the nearest training row of a test row is left out
    scores = method.predict_proba(test).toarray()
    return fitted - started, time.perf_counter() - fitted, scores


def main(argv: Sequence[str] | None = None) -> int:
    options = tyro.cli(Options, args=argv)
    torch.set_num_threads(1)
    data = load_dataset(options.dataset)
    split = make_split(data, fraction=options.fraction)
    test = split.test[: round(options.fraction * len(split.test))]
    split = type(split)(**{**vars(split), "test": test})
    problem = make_problem(data, split, torch.device("cpu"))
    table = Table(
        title=f"{options.dataset}: {len(problem.train)} training rows, {len(problem.test)} test "
        f"rows, {problem.shape.n_labels} labels, k = {options.k}"
    )
    for column in ("", "fit s", "predict s", "both s", "ratio"):
        table.add_column(column, justify="right" if column else "left")
    mine = ours(problem, options.k)
    with threadpool_limits(1):
        other = theirs(problem, options.k)
    for name, (fit, predicting, _) in {"labelwright": mine, "scikit-multilearn-ng": other}.items():
        ratio = (fit + predicting) / sum(mine[:2])
        table.add_row(
            name, f"{fit:.2f}", f"{predicting:.2f}", f"{fit + predicting:.2f}", f"{ratio:.0f}"
        )
    apart = np.abs(mine[2] - other[2]).mean()
    table.caption = f"posteriors differ by {apart:.4f} on average: ties among neighbours"
    Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
