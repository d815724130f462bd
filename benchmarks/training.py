"""Seconds per epoch of every method, relative to cross-entropy and to plain dense samples.

python -m benchmarks.training [--dataset delicious] [--rounds 3] [--batches 8]

Batches of all methods are interleaved, so that a busy moment of the machine hits all alike. The
methods of the NCE family are timed a second time with dense samples, forced, on the same batches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from train import methods
from train.batches import batch_order
from train.config import find_preset, read_preset
from train.data import load_dataset, make_split
from train.loop import seed_everything
from train.losses import samples
from train.method import Method
from train.problem import Problem, make_problem

SEAL_LOSSES = ("margin", "regression", "regression-s", "nce", "ranking")
NCE_FAMILY = ("nce", "seal nce", "seal ranking")
WARM_UP_BATCHES = 20


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to measure."""

    dataset: str = "delicious"
    """A data set with presets for all methods."""
    rounds: int = 3
    batches: int = 4
    """Batches of each method in a round."""


def build(name: str, dataset: str, problem: Problem) -> Method:
    """Make `ce`, `dvn`, `seal nce` ... with their presets, past every pretraining stage."""
    method_name, _, loss = name.partition(" ")
    module = methods.load(method_name)
    path = find_preset("auto", dataset, method_name)
    config = module.Config() if path is None else read_preset(path, module.Config, variant=loss)
    if loss:
        config = type(config)(**{**vars(config), "loss": loss})
    seed_everything(0)
    method: Method = module.build(config, problem)
    return method


def timed(method: Method, problem: Problem, batches: Iterator[torch.Tensor], count: int) -> float:
    """Seconds of one batch, on average."""
    started = time.perf_counter()
    for _ in range(count):
        rows = next(batches)
        method.step(problem.train.x.batch(rows), problem.train.y.take(rows))
    return (time.perf_counter() - started) / count


@contextmanager
def dense_samples() -> Iterator[None]:
    """Make every density too large for the sparse form."""
    before, samples.GREATEST_RATE = samples.GREATEST_RATE, -1.0
    try:
        yield
    finally:
        samples.GREATEST_RATE = before


def endless(problem: Problem) -> Iterator[torch.Tensor]:
    epoch = 0
    while True:
        yield from batch_order(len(problem.train), 32, seed=0, epoch=epoch)[:-1]
        epoch += 1


def main() -> None:
    options = tyro.cli(Options)
    torch.set_flush_denormal(True)
    data = load_dataset(options.dataset)
    problem = make_problem(data, make_split(data), torch.device("cpu"))
    names = ["ce", "spen", "dvn", "nce", *(f"seal {loss}" for loss in SEAL_LOSSES)]
    batches = endless(problem)
    trained: dict[str, Method] = {}
    for name in track(names, "warming up"):
        trained[name] = build(name, options.dataset, problem)
        # So that samples are as sparse as they are for nearly all of a run.
        timed(trained[name], problem, batches, WARM_UP_BATCHES)
        for stage in range(1, trained[name].stages):
            trained[name].enter_stage(stage)

    def measure(name: str) -> float:
        return timed(trained[name], problem, batches, options.batches)

    seconds: dict[str, list[float]] = {name: [] for name in names}
    dense: dict[str, list[float]] = {name: [] for name in NCE_FAMILY}
    for _ in track(range(options.rounds), "measuring"):
        for name in names:
            seconds[name].append(measure(name))
            if name in dense:
                with dense_samples():
                    dense[name].append(measure(name))
    Console().print(report(options, problem, seconds, dense))


def report(
    options: Options,
    problem: Problem,
    seconds: dict[str, list[float]],
    dense: dict[str, list[float]],
) -> Table:
    median: Callable[[list[float]], float] = statistics.median
    per_epoch = len(problem.train) / 32
    baseline = median(seconds["ce"])
    table = Table(title=f"{options.dataset}, batches of 32, {torch.get_num_threads()} thread(s)")
    for column in ("method", "s per epoch", "x ce", "dense samples / ours"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for name, times in seconds.items():
        ratio = median(dense[name]) / median(times) if name in dense else None
        table.add_row(
            name,
            f"{median(times) * per_epoch:.2f}",
            f"{median(times) / baseline:.1f}",
            "" if ratio is None else f"{ratio:.2f}",
        )
    return table


if __name__ == "__main__":
    main()
