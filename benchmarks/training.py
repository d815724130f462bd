"""Seconds per epoch of every method, relative to cross-entropy and to a plain implementation.

python -m benchmarks.training [--dataset delicious] [--methods ce,seal:nce] [--rounds 3]

Batches of all methods are interleaved, so that a busy moment of the machine hits all alike. Each
method is timed a second time in the plain way, on batches of the same size: dense rows, a number
for every label of every sampled label set, torch's own dropout and matrix products, nothing shared
by inner steps.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest import mock

import torch
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from train import methods
from train.batches import DenseRows, SparseRows, batch_order
from train.config import TrainingConfig, find_preset, read_preset
from train.data import load_dataset, make_split
from train.errors import run_command
from train.loop import seed_everything
from train.losses import samples
from train.method import Method
from train.nets import gaussian, mlp
from train.nets.mlp import TaskNet
from train.problem import Problem, make_problem
from train.products import fast_products

WARM_UP_BATCHES = 20


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to measure."""

    dataset: str = "delicious"
    """A data set with presets for the methods."""
    methods: str = ""
    """Names such as ce,seal:nce; unless told all that learn batch by batch."""
    rounds: int = 3
    batches: int = 4
    """Batches of each method in a round."""


class Trained:
    """A method with its preset, past every pretraining stage, and an endless row of batches."""

    def __init__(self, name: str, dataset: str, problem: Problem) -> None:
        method_name, _, kind = name.partition(":")
        module = methods.load(method_name)
        path = find_preset("auto", dataset, method_name)
        config = module.Config() if path is None else read_preset(path, module.Config, variant=kind)
        fields = {**vars(config), **config.KINDS.get(kind, {})}
        self.config: TrainingConfig = type(config)(**fields)
        self.problem = problem
        self.batches = self._endless()
        seed_everything(0)
        self.method: Method = module.build(self.config, problem)
        # So that samples are as sparse as they are for nearly all of a run.
        self.timed(WARM_UP_BATCHES)
        for stage in range(1, self.method.stages):
            self.method.enter_stage(stage)

    def _endless(self) -> Iterator[Tensor]:
        epoch = 0
        while True:
            yield from batch_order(len(self.problem.train), self.config.batch_size, 0, epoch)
            epoch += 1

    def timed(self, count: int) -> float:
        """Seconds of one batch, on average."""
        train = self.problem.train
        started = time.perf_counter()
        for _ in range(count):
            rows = next(self.batches)
            self.method.step(train.x.batch(rows), train.y.take(rows))
        return (time.perf_counter() - started) / count

    def seconds_per_epoch(self, count: int) -> float:
        """Measured on some batches."""
        return self.timed(count) * len(self.problem.train) / self.config.batch_size


@contextmanager
def plain() -> Iterator[None]:
    """Undo what makes steps faster than the formulas, written down."""
    with ExitStack() as stack:
        for target, name, replacement in (
            (samples, "GREATEST_RATE", -1.0),
            (SparseRows, "batch", SparseRows.take),
            (DenseRows, "batch", DenseRows.take),
            (mlp, "dropout", functional.dropout),
            (gaussian, "dropout", functional.dropout),
            (TaskNet, "begin", lambda net, x: x),
            (TaskNet, "finish", lambda net, x: functional.linear(net.features(x), net.labels)),
        ):
            stack.enter_context(mock.patch.object(target, name, replacement))
        yield


def stepped() -> list[str]:
    """Every method that learns batch by batch, and every kind but the static ones."""
    names = []
    for name in methods.available():
        config_class = methods.load(name).Config
        if issubclass(config_class, TrainingConfig):
            kinds = [kind for kind in config_class.KINDS if "static" not in kind]
            names += [f"{name}:{kind}" for kind in kinds] or [name]
    return names


def main(argv: list[str] | None = None) -> int:
    options = tyro.cli(Options, args=argv)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    data = load_dataset(options.dataset)
    problem = make_problem(data, make_split(data), torch.device("cpu"))
    names = list(
        dict.fromkeys(["ce", *(options.methods.split(",") if options.methods else stepped())])
    )
    trained = {name: Trained(name, options.dataset, problem) for name in track(names, "warming up")}
    ours: dict[str, list[float]] = {name: [] for name in names}
    plainly: dict[str, list[float]] = {name: [] for name in names}
    for _ in track(range(options.rounds), "measuring"):
        for name in names:
            with fast_products():
                ours[name].append(trained[name].seconds_per_epoch(options.batches))
            with plain():
                plainly[name].append(trained[name].seconds_per_epoch(options.batches))
    Console().print(report(options.dataset, trained, ours, plainly))
    return 0


def report(
    dataset: str,
    trained: dict[str, Trained],
    ours: dict[str, list[float]],
    plainly: dict[str, list[float]],
) -> Table:
    seconds = {name: statistics.median(times) for name, times in ours.items()}
    table = Table(title=f"{dataset}, one thread, medians")
    for column in ("method", "batch", "s per epoch", "x ce", "plain / ours"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for name, median in seconds.items():
        table.add_row(
            name,
            str(trained[name].config.batch_size),
            f"{median:.2f}",
            f"{median / seconds['ce']:.1f}",
            f"{statistics.median(plainly[name]) / median:.2f}",
        )
    return table


if __name__ == "__main__":
    raise SystemExit(run_command(main))
