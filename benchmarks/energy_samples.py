"""Compare dense with sparse samples of the NCE ranking loss: `python -m benchmarks.energy_samples`.

One step is: draw K label sets a row, score them and the truth, loss, gradient of the loss-net.
Dense and sparse take turns within one run, on one thread; CPU time, the fastest of the rounds.
The task-net's logits are normal with standard deviation 2, moved so that a set holds the given
number of labels on average. Rows are as sparse as in the data set (of the last two: as text usually
is). `beyond T(x)` leaves out the feature network, which both run alike.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy import sparse
from torch import Tensor

from train.batches import to_rows
from train.losses import bernoulli_samples, log_noise_probability, nce_ranking
from train.losses.samples import LabelNoise, SparseSamples
from train.nets.energy import EnergyNet
from train.nets.mlp import FeatureNet
from train.products import fast_products

ROWS = 32


@dataclass(frozen=True)
class Case:
    """The sizes of a data set and of its loss-net."""

    name: str
    features: int
    labels: int
    samples: int
    labels_per_set: float
    density: float
    """Share of a row's features that are not zero."""
    widths: tuple[int, ...] = (400, 400)
    global_units: int = 200


CASES = (
    Case("delicious", 500, 983, 80, 19, 0.037),
    Case("delicious, as trained", 500, 983, 80, 10, 0.037),
    Case("eurlex-ev", 5000, 3993, 40, 5.3, 0.047, (500, 500), 300),
    Case("20,000 labels", 2000, 20_000, 40, 8, 0.03),
)
WIDE = Case("100,000 labels", 2000, 100_000, 40, 8, 0.03)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    with fast_products():  # as in training
        # First, since the peak of a process never falls again.
        measure_wide(rounds)
        print(f"{'ms':24s}{'dense':>8s}{'sparse':>8s}{'ratio':>8s}{'beyond T(x)':>13s}  of sparse:")
        for case in CASES:
            compare(Step(case), rounds)


class Step:
    """A loss-net, a batch, and a task-net's logits."""

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        self.case = case
        self.net = EnergyNet(
            FeatureNet(case.features, case.widths, 0.1), case.labels, case.global_units
        )
        rows = sparse.random_array((ROWS, case.features), density=case.density, rng=0, format="csr")
        self.x = to_rows(rows.astype("float32"), torch.device("cpu")).batch(torch.arange(ROWS))
        self.logits = logits_of(case)
        self.y = torch.bernoulli(self.logits.sigmoid())
        self.drawn = self.draw()

    def draw(self) -> Tensor | SparseSamples:
        """Sets alone."""
        return LabelNoise(self.logits).candidates(self.y, self.case.samples)

    def sparse(self) -> None:
        """The step as training does it."""
        noise = LabelNoise(self.logits)
        candidates = noise.candidates(self.y, self.case.samples)
        self.learn(candidates, noise.log_probability(candidates))

    def dense(self) -> None:
        """The step with a number for every label of every set."""
        drawn = bernoulli_samples(self.logits.sigmoid(), self.case.samples)
        candidates = torch.cat([self.y.unsqueeze(1), drawn], 1)
        self.learn(candidates, log_noise_probability(self.logits, candidates))

    def learn(self, candidates: Tensor | SparseSamples, log_noise: Tensor) -> None:
        """Loss and gradient."""
        loss = nce_ranking(self.net(self.x, candidates), log_noise)
        self.net.zero_grad()
        loss.backward()

    def score(self) -> None:
        """All but the drawing."""
        self.learn(self.drawn, torch.zeros(ROWS, 1 + self.case.samples))

    def features(self) -> None:
        """T(x) alone, with a gradient."""
        self.net.zero_grad()
        self.net.features(self.x).sum().backward()


def logits_of(case: Case) -> Tensor:
    logits = torch.randn(ROWS, case.labels) * 2
    low, high = -40.0, 10.0
    for _ in range(50):
        middle = (low + high) / 2
        if (logits + middle).sigmoid().sum(1).mean() > case.labels_per_set:
            high = middle
        else:
            low = middle
    return logits + low


def compare(step: Step, rounds: int) -> None:
    optimizer = torch.optim.AdamW(step.net.parameters(), fused=True)
    step.score()
    dense, sparse, features, draw, score, update = interleaved(
        rounds, step.dense, step.sparse, step.features, step.draw, step.score, optimizer.step
    )
    print(
        f"{step.case.name:24s}{1e3 * dense:8.1f}{1e3 * sparse:8.1f}{dense / sparse:7.1f}x"
        f"{(dense - features) / (sparse - features):12.1f}x"
        f"  draw {1e3 * draw:.1f}, score and gradient {1e3 * score:.1f} with T(x) "
        f"{1e3 * features:.1f}; AdamW besides {1e3 * update:.1f}"
    )


def measure_wide(rounds: int) -> None:
    """Time and memory of whole steps of the loss-net where a dense one would need gigabytes."""
    step = Step(WIDE)
    optimizer = torch.optim.AdamW(step.net.parameters(), fused=True)

    def train() -> None:
        step.sparse()
        optimizer.step()

    (seconds,) = interleaved(rounds, train)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    held = 4 * 4 * sum(p.numel() for p in step.net.parameters()) / 1e9
    dense = ROWS * (1 + WIDE.samples) * WIDE.labels * 4 / 1e9
    print(
        f"{WIDE.name}: {1e3 * seconds:.0f} ms with AdamW, peak {peak:.2f} GB, of which weights, "
        f"gradients and AdamW {held:.2f} (one dense tensor of samples: {dense:.2f})"
    )


def interleaved(rounds: int, *functions: Callable[[], object]) -> list[float]:
    """Fastest CPU seconds of each function, called in turns, each a few times to be warm."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for i, function in enumerate(functions):
            for _ in range(4):
                start = time.process_time()
                function()
                best[i] = min(best[i], time.process_time() - start)
    return best


if __name__ == "__main__":
    main()
