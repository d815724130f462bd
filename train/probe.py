"""A linear probe: what the frozen features of a trained network tell about the labels of any data.

Logistic regressions on `predictor.embed(x)` for 45 penalties from 1e-6 to 1e5 (Kornblith et al.,
CVPR 2019, and Kobayashi, CVPR 2023), from the strongest to the weakest, each beginning where the
one before ended.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from train.batches import Rows, scoring_order
from train.checkpoint import Checkpoint, OnInputs
from train.errors import ConfigError, DataError
from train.logistic import solve
from train.metrics import evaluate, propensities
from train.problem import Part, Problem
from train.thresholds import FIXED_THRESHOLD, monitored_score

PENALTIES = tuple(float(value) for value in np.logspace(-6, 5, 45))


@dataclass(frozen=True)
class Point:
    """The regressions of one penalty."""

    penalty: float
    steps: int
    """Of L-BFGS."""
    largest_slope: float
    """Greatest entry of the gradient where it ended, for the mean over rows."""
    monitored: float
    """Validation score by which a penalty is chosen."""
    validation: dict[str, float]
    test: dict[str, float]
    """Every metric at threshold 0.5, like those of the validation rows."""


@torch.no_grad()
def features(checkpoint: Checkpoint, rows: Rows, device: torch.device) -> Tensor:
    """The embeddings of rows as the user has them, (rows, size) float64."""
    embedder = checkpoint.embedder()
    if embedder is None:
        raise ConfigError(
            f"a {checkpoint.method!r} model has no features to probe: take one of a method that "
            "trains a feed-forward network, such as ce, twoway or seal"
        )
    if checkpoint.text is None and rows.width != checkpoint.shape["n_features"]:
        raise DataError(
            f"the model takes rows of {checkpoint.shape['n_features']} features, the data set has "
            f"{rows.width}: probe it on data with the same columns"
        )
    embed = OnInputs(embedder).to(device)
    order = scoring_order(rows)
    vectors = torch.cat([embed(rows.take(index.to(device))).double() for index in order])
    return vectors[torch.cat(order).argsort().to(device)]


@torch.no_grad()
def probe(
    checkpoint: Checkpoint,
    problem: Problem,
    *,
    monitor: str,
    constants: tuple[float, float],
) -> Iterator[Point]:
    """Solve and judge penalty after penalty, the strongest first.

    constants: a and b of the propensity model behind PSP@k.
    """
    counts = np.asarray(problem.train.targets.sum(axis=0)).ravel()
    full_suite = functools.partial(
        evaluate,
        thresholds=FIXED_THRESHOLD,
        train_counts=counts,
        propensity=propensities(counts, len(problem.train), *constants),
    )
    embedded = {
        part: features(checkpoint, getattr(problem, part).x, problem.device)
        for part in ("train", "validation", "test")
    }
    y = _targets(problem.train, problem.device)
    weights: Tensor | None = None
    for penalty in reversed(PENALTIES):
        solution = solve(embedded["train"], y, penalty, start=weights)
        weights = solution.weights
        validation, test = (
            solution.logits(embedded[part]).sigmoid().float().cpu().numpy()
            for part in ("validation", "test")
        )
        yield Point(
            penalty,
            solution.steps,
            solution.largest_slope,
            monitored_score(validation, problem.validation.targets, monitor),
            full_suite(validation, problem.validation.targets),
            full_suite(test, problem.test.targets),
        )


def _targets(part: Part, device: torch.device) -> Tensor:
    return part.y.take(torch.arange(len(part), device=device)).double()


def chosen(points: list[Point]) -> Point:
    """The best on validation rows; of equals the one with the strongest penalty."""
    return max(points, key=lambda point: (point.monitored, point.penalty))
