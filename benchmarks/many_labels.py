"""Time and memory of a training step of `sampled` by the number of labels, and of a dense one.

python -m benchmarks.many_labels [--labels 10000 100000 325000 1000000] [--rounds 5]

Every size is a process of its own, all are asked in turn, so that a busy moment hits all alike.
The dense step has the same loss on the same rows, but a gradient for every row of both tables and
torch's own Adam. Memory is the peak of a process above what it had before it built the network.
With 512 hidden units a million labels take 6 GB: all sizes together some 12.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table

from train.batches import LabelLists, SparseBatch, batch_order
from train.data import load_dataset, make_split
from train.errors import run_command
from train.loop import seed_everything
from train.losses.sampled import log_weights, sampled_softmax, uniform_negatives
from train.methods import sampled
from train.problem import Problem, make_problem

WARM_UP_STEPS = 20
GIGABYTE = 1e9


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to measure."""

    labels: tuple[int, ...] = (10_000, 100_000, 325_000, 1_000_000)
    """Numbers of labels; the first is what others are compared with."""
    dense: int = 325_000
    """Labels of the dense step; 0: none."""
    hidden: int = 512
    negatives: int = 256
    rows: int = 20_000
    rounds: int = 5
    steps: int = 20
    """Of each process in a round; dense ones take one."""


class Dense:
    """The same step, with the gradient of whole tables and torch's Adam."""

    def __init__(self, config: sampled.Config, problem: Problem) -> None:
        self.config = config
        self.network = sampled.predictor(config, problem.shape)
        self.adam = torch.optim.Adam(self.network.parameters(), lr=config.lr)

    def step(self, x: SparseBatch, y: LabelLists) -> None:
        """Train on one batch."""
        negatives = uniform_negatives(y.labels, y.shape[1], self.config.negatives)
        weights = log_weights("constant", negatives, y.labels, torch.empty(0))
        hidden = self.network.features(x)
        table = self.network.labels[:, :-1]
        true = (hidden[y.rows] * table[y.labels]).sum(1)
        false = (hidden @ table[negatives.labels].T)[y.rows]
        self.adam.zero_grad()
        sampled_softmax(true, false, weights).mean().backward()
        self.adam.step()


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def child(settings: dict[str, Any]) -> None:
    """Answer every line with the median of so many steps' seconds, and the memory of the whole."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    data = load_dataset(f"synthetic:labels={settings['labels']},rows={settings['rows']}")
    problem = make_problem(data, make_split(data), torch.device("cpu"))
    config = sampled.Config(hidden=(settings["hidden"],), negatives=settings["negatives"])
    before = peak_bytes()
    seed_everything(0)
    kind = Dense if settings["dense"] else sampled.Sampled
    method = kind(config, problem)
    order = batch_order(len(problem.train), config.batch_size, 0, 0)
    batches = iter([rows for _ in range(1000) for rows in order])

    def seconds(count: int) -> float:
        times = []
        for _ in range(count):
            rows = next(batches)
            started = time.process_time()
            method.step(problem.train.x.batch(rows), problem.train.y.lists(rows))
            times.append(time.process_time() - started)
        return statistics.median(times)

    seconds(1 if settings["dense"] else WARM_UP_STEPS)
    network = method.network if isinstance(method, Dense) else method.predictor
    values = sum(parameter.numel() for parameter in network.parameters())
    for line in sys.stdin:
        answer = {
            "seconds": seconds(int(line)),
            "peak": peak_bytes() - before,
            "needed": 3 * 4 * values,  # parameters and Adam's two moments
        }
        print(json.dumps(answer), flush=True)


class Process:
    """One size in a process of its own."""

    def __init__(self, options: Options, labels: int, *, dense: bool) -> None:
        self.labels, self.dense = labels, dense
        self.steps = 1 if dense else options.steps
        settings = {**vars(options), "labels": labels, "dense": dense}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.many_labels", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.answers: list[dict[str, float]] = []

    def ask(self) -> None:
        """Let it take some steps."""
        assert self.process.stdin is not None  # noqa: S101 - it is a pipe
        assert self.process.stdout is not None  # noqa: S101 - it is a pipe
        self.process.stdin.write(f"{self.steps}\n")
        self.process.stdin.flush()
        self.answers.append(json.loads(self.process.stdout.readline()))

    def seconds(self) -> float:
        """Of a step."""
        return statistics.median(answer["seconds"] for answer in self.answers)

    def end(self) -> None:
        """Let it go."""
        self.process.communicate()


def report(processes: list[Process]) -> Table:
    table = Table(title="one training step, one thread, medians")
    for column in ("labels", "", "ms", "x the first", "peak GB", "beyond weights and moments"):
        table.add_column(column, justify="right")
    for process in processes:
        last = process.answers[-1]
        table.add_row(
            str(process.labels),
            "dense Adam" if process.dense else "",
            f"{1e3 * process.seconds():.1f}",
            f"{process.seconds() / processes[0].seconds():.2f}",
            f"{last['peak'] / GIGABYTE:.2f}",
            f"{(last['peak'] - last['needed']) / GIGABYTE:+.2f}",
        )
    return table


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if words and words[0].startswith("{"):
        child(json.loads(words[0]))
        return 0
    options = tyro.cli(Options, args=words)
    processes = [Process(options, labels, dense=False) for labels in options.labels]
    if options.dense:
        processes.append(Process(options, options.dense, dense=True))
    try:
        for _ in range(options.rounds):
            for process in processes:
                process.ask()
    finally:
        for process in processes:
            process.end()
    Console().print(report(processes))
    same = [process for process in processes if process.labels == options.dense]
    if len(same) == 2:
        print(f"dense / ours at {options.dense}: {same[1].seconds() / same[0].seconds():.0f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
