"""Training in bfloat16, and by torch's own products, against float32.

python -m benchmarks.precision [--rounds 3]

Steps of the same method on the same batches, in turns. Networks of their real size with random
inputs, since time does not depend on them: texts of 64 tokens for all-MiniLM-L6-v2, and the crops
of Weizmann's horses with the settings of SEAL's paper.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy import sparse

from train import methods
from train.config import TokenConfig, find_preset, read_preset
from train.data.dataset import ImageShape, MultiLabelData, Split
from train.errors import run_command
from train.loop import seed_everything
from train.precision import Precision, computing_in
from train.problem import Problem, make_problem
from train.products import fast_products
from train.texts import encode_texts

CPU = torch.device("cpu")
KINDS = ("torch's own products", "float32", "bfloat16")
TOKENS, LABELS = 64, 90
WORDS = ("grain", "ship", "trade", "rate", "corn", "oil", "bank", "wheat")


def rows_for_training(count: int) -> Split:
    """All rows to train on; the other parts, which are not looked at, are the first of them."""
    rows = np.arange(count)
    return Split(train=rows, validation=rows[:1], test=rows[:1], rule="all")


def text_problem(config: TokenConfig, rows: int) -> Problem:
    """Texts that fill the encoder."""
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS, TOKENS)) for _ in range(rows)]
    data = MultiLabelData(
        name="texts",
        inputs=texts,
        targets=sparse.csr_array((random.random((rows, LABELS)) < 0.02).astype(np.uint8)),
        labels=tuple(f"label {i}" for i in range(LABELS)),
    )
    split = rows_for_training(rows)
    encoded = encode_texts(data, split, config, CPU, progress=False)
    return make_problem(data, split, CPU, config.scaling, encoded)


def image_problem(rows: int) -> Problem:
    """Pictures of 32 x 32 pixels and their masks."""
    random = np.random.default_rng(0)
    image = ImageShape(height=32, width=32)
    data = MultiLabelData(
        name="images",
        inputs=random.random((rows, 32 * 32 * 3)).astype(np.float32),
        targets=sparse.csr_array((random.random((rows, 32 * 32)) < 0.3).astype(np.uint8)),
        labels=tuple(f"pixel {i}" for i in range(32 * 32)),
        image=image,
    )
    return make_problem(data, rows_for_training(rows), CPU)


def text_step(name: str) -> Callable[[], object]:
    """One step of a method on a batch of texts, MiniLM trained in full."""
    config = methods.load(name).Config(encoder="minilm", tuning="full", max_tokens=TOKENS)
    return _step(name, config, text_problem(config, config.batch_size))


def image_step(kind: str) -> Callable[[], object]:
    """One step of SEAL on a batch of crops."""
    path = find_preset("auto", "weizmann_horses", "seal")
    assert path is not None  # noqa: S101 - it is in the repository
    config = read_preset(path, methods.load("seal").Config, variant=kind)
    return _step("seal", config, image_problem(config.batch_size))


def _step(name: str, config: TokenConfig, problem: Problem) -> Callable[[], object]:
    seed_everything(0)
    method = methods.load(name).build(config, problem)
    rows = torch.arange(len(problem.train))
    x, y = problem.train.x.batch(rows), problem.train.y.take(rows)
    return lambda: method.step(*problem.views(x, y))


def seconds(step: Callable[[], object], kind: str) -> float:
    """Of one step."""
    precision: Precision = "bfloat16" if kind == "bfloat16" else "float32"
    with nullcontext() if kind == KINDS[0] else fast_products(), computing_in(precision, CPU):
        started = time.perf_counter()
        step()
        return time.perf_counter() - started


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args(argv).rounds
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    steps = {
        "ce, MiniLM": text_step("ce"),
        "seal:nce, MiniLM": text_step("seal"),
        "seal:nce, crops": image_step("nce"),
        "seal:regression-s, crops": image_step("regression-s"),
    }
    table = Table(title="one thread, medians")
    for column in (
        "step",
        *(f"{kind}, s" for kind in KINDS),
        "own / float32",
        "float32 / bfloat16",
    ):
        table.add_column(column, justify="left" if column == "step" else "right")
    for name, step in track(steps.items(), "measuring"):
        step()
        times = [[seconds(step, kind) for kind in KINDS] for _ in range(rounds)]
        medians = [f"{statistics.median(each):.2f}" for each in zip(*times, strict=True)]
        ratios = zip(*((own / exact, exact / half) for own, exact, half in times), strict=True)
        table.add_row(name, *medians, *(f"{statistics.median(each):.2f}" for each in ratios))
    Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
