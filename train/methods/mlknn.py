"""ML-kNN: how many of a row's nearest neighbours have a label decides by Bayes' rule.

Zhang and Zhou: "ML-KNN: A lazy learning approach to multi-label learning", Pattern Recognition
40(7), 2007. For each label: H is "a row has it", r how many of its k nearest training rows do.

    P(H)     = (s + n) / (2 s + N)                      n of N training rows have the label
    P(r | H) = (s + c[r]) / (s (k + 1) + sum of c)      c[r]: rows with it and r such neighbours
    logit    = log P(H) P(r | H) - log P(not H) P(r | not H)

A training row is no neighbour of its own.

Differences from the paper: of equally distant training rows the earlier ones are taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from train.config import MethodConfig, require_positive
from train.errors import ConfigError
from train.nets.neighbours import nearest, squared_distances
from train.nets.stored import StoredTables, dense_table
from train.problem import Problem, Shape

FITTING_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class Config(MethodConfig):
    """Hyper-parameters of ML-kNN."""

    k: int = 10
    """Neighbours of a row."""
    smoothing: float = 1.0
    """s: how many rows of each kind are taken as seen before counting."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "k", "smoothing")


class NeighbourCounts(StoredTables):
    """The training rows, their labels, and a logit for each label and count of neighbours."""

    rows: Tensor
    labels: Tensor
    logits: Tensor

    def __init__(self, rows: Tensor, labels: Tensor, k: int) -> None:
        super().__init__()
        self.k = k
        self.register_buffer("rows", rows)  # (rows, features)
        self.register_buffer("labels", labels)  # (rows, labels) uint8
        self.register_buffer("logits", rows.new_zeros(k + 1, labels.shape[1]))

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (batch, features) to logits (batch, labels)."""
        return self.logits.gather(0, self.counts(squared_distances(x, self.rows)))

    def counts(self, distances: Tensor) -> Tensor:
        """How many of the k nearest have each label, by distances (batch, rows)."""
        neighbours = self.labels[nearest(distances, self.k)]  # (batch, k, labels)
        return neighbours.sum(1, dtype=torch.int64)


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the predictor with empty tables."""
    rows = torch.zeros(shape.n_rows, shape.n_features)
    return NeighbourCounts(
        rows, torch.zeros(shape.n_rows, shape.n_labels, dtype=torch.uint8), config.k
    )


def fit(config: Config, problem: Problem) -> nn.Module:
    """Store the training rows and count their neighbours' labels."""
    if config.k >= len(problem.train):
        raise ConfigError(
            f"--k {config.k} neighbours of each training row are needed, and there are only "
            f"{len(problem.train) - 1} others: lower --k"
        )
    rows = dense_table(problem.train.x, problem.device)
    labels = dense_table(problem.train.y, problem.device, torch.uint8)
    network = NeighbourCounts(rows, labels, config.k)
    counts = torch.cat(
        [
            network.counts(_distances_to_others(index, rows))
            for index in torch.arange(len(rows), device=rows.device).split(FITTING_BATCH)
        ]
    )
    network.logits = _logits(counts, labels, config).to(rows.dtype)
    return network


def _distances_to_others(index: Tensor, rows: Tensor) -> Tensor:
    distances = squared_distances(rows[index], rows)
    return distances.scatter(1, index[:, None], torch.inf)


def _logits(counts: Tensor, labels: Tensor, config: Config) -> Tensor:
    """The logit of each count 0..k and label, (k + 1, labels), from all training rows."""
    s, k = config.smoothing, config.k
    has = labels.double()
    joint = []
    for of_kind in (has, 1 - has):
        seen = has.new_zeros(k + 1, has.shape[1]).scatter_add(0, counts, of_kind)  # c[r]
        total = of_kind.sum(0)
        prior = (s + total) / (2 * s + len(has))
        joint.append(prior.log() + ((s + seen) / (s * (k + 1) + total)).log())
    return joint[0] - joint[1]
