"""The plain network that most methods train: one pass from a row to a score for every label.

A method that is no more than a loss on it is a `Config` and that loss, see `train/methods/ce.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from train.batches import Inputs
from train.config import Monitor, TokenConfig, require_fraction, require_positive
from train.errors import ConfigError
from train.method import Method
from train.nets.mlp import FeatureNet, TaskNet
from train.nets.segmentation import CropAverage, FullyConvolutional
from train.nets.softmax import SoftmaxNet
from train.nets.tagging import WordTaskNet, WordVectors
from train.nets.text import TextEncoder
from train.optimizer import TaskOptimizer, parameter_groups
from train.problem import Problem, Shape

Schedule: TypeAlias = Literal["plateau", "linear"]

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Logits and targets, (batch, labels) each -> a scalar."""


@dataclass(frozen=True, kw_only=True)
class FeedForwardConfig(TokenConfig):
    """Hyper-parameters of the network and of its optimiser."""

    lr: float = 2e-3
    """Step size of AdamW."""
    weight_decay: float = 1e-5
    """Weight decay of AdamW."""
    hidden: tuple[int, ...] = (400, 400)
    """Width of each hidden layer; a text encoder that is trained takes their place."""
    dropout: float = 0.2
    """Share of hidden units dropped after each layer but the last."""
    schedule: Schedule = "plateau"
    """Step sizes are halved when validation stalls, or fall evenly over all `--epochs`."""
    plus: str = ""
    """Losses of other methods to add, with their defaults: NAME:WEIGHT[,NAME:WEIGHT]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "lr")
        require_fraction(self, "dropout")
        added_names(self.plus)


@dataclass(frozen=True, kw_only=True)
class UncalibratedConfig(FeedForwardConfig):
    """Of a loss whose scores are no probabilities, so that 0.5 is no natural threshold."""

    monitor: Monitor = "tuned_mean_f1"
    """What the best epoch is judged by; `tuned`: each F1 at its best threshold of 0.1 ... 0.9."""


def added_names(plus: str) -> dict[str, float]:
    """Read `--plus`: the weight of each added loss, by the name of its method."""
    weights: dict[str, float] = {}
    for part in plus.split(",") if plus else []:
        name, _, number = part.strip().partition(":")
        try:
            weights[name] = float(number)
        except ValueError:
            weights[name] = math.nan
        if not name or not 0 < weights[name] < math.inf:
            raise ConfigError(
                f"--plus must be NAME:WEIGHT[,NAME:WEIGHT] with positive weights, such as ce:0.5, "
                f"got {plus!r}"
            )
    return weights


class Widths(Protocol):
    """What a config says about a feed-forward network."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """Width of each hidden layer."""
        ...

    @property
    def dropout(self) -> float:
        """Share of hidden units dropped after each layer but the last."""
        ...


def feature_net(config: Widths, shape: Shape) -> FeatureNet | TextEncoder:
    """Build what turns a row into features: hidden layers, or a text encoder for tokens."""
    if shape.encoder is not None:
        return TextEncoder(shape.encoder)
    return FeatureNet(shape.n_features, config.hidden, config.dropout)


def word_vectors(shape: Shape) -> WordVectors:
    """Build what turns words into vectors."""
    if shape.encoder is None:
        raise ConfigError("labels on words need a text encoder that is trained")
    return WordVectors(shape.encoder)


def task_net(config: Widths, shape: Shape) -> TaskNet | CropAverage | WordTaskNet:
    """Build the untrained network."""
    if shape.tagging:
        return WordTaskNet(word_vectors(shape), shape.n_labels)
    if shape.image is not None:
        return CropAverage(FullyConvolutional(shape.image), shape.image)
    return TaskNet(feature_net(config, shape), shape.n_labels)


def softmax_net(config: Widths, shape: Shape) -> SoftmaxNet:
    """Build the untrained network of a loss that only orders the labels of a row."""
    return SoftmaxNet(feature_net(config, shape), shape.n_labels)


def label_prior(problem: Problem) -> Tensor:
    """Each label's share of the (row, label) pairs of the training rows: (labels,), positive.

    A label without training rows counts as if it had one: it has no share to take a logarithm of.
    """
    counts = np.maximum(np.asarray(problem.train.targets.sum(0)).ravel(), 1)
    return torch.tensor(counts / counts.sum(), dtype=torch.float32).to(problem.device)


class FeedForward(Method):
    """A task-net trained by a loss, or by the sum of several."""

    def __init__(
        self,
        config: FeedForwardConfig,
        problem: Problem,
        losses: Mapping[str, Loss],
        network: TaskNet | None = None,
    ) -> None:
        """Train `network`; None: the plain one of the config."""
        self.losses = losses
        self.predictor = (network or task_net(config, problem.shape)).to(problem.device)
        self.optimizer = TaskOptimizer(
            parameter_groups(self.predictor, encoder_lr=config.encoder_lr),
            lr=config.lr,
            weight_decay=config.weight_decay,
            falling_epochs=config.epochs if config.schedule == "linear" else None,
        )

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """One step down the sum of the losses."""
        logits = self.predictor(x)
        losses = {name: loss(logits, y) for name, loss in self.losses.items()}
        total = torch.stack(list(losses.values())).sum()
        self.optimizer.step(total)
        parts = {name: loss.detach() for name, loss in losses.items()}
        return parts if len(parts) == 1 else {"objective": total.detach(), **parts}

    def end_epoch(self, validation_score: float) -> None:
        """Let the rate follow its schedule."""
        self.optimizer.end_epoch(validation_score)


class RowOrdering(FeedForward):
    """A network trained by losses that only order the labels of a row; it predicts by softmax.

    A label's score is 0.5 where it has half of what each label would have in a row that shares
    its softmax evenly among as many labels as training rows have on average.
    """

    def __init__(
        self,
        config: FeedForwardConfig,
        problem: Problem,
        losses: Mapping[str, Loss],
        adjustment: Tensor | None = None,
    ) -> None:
        """Train a `softmax_net`; adjustment: (labels,), added to its logits when it predicts."""
        network = softmax_net(config, problem.shape).to(problem.device)
        mean_labels = max(1.0, problem.train.targets.nnz / len(problem.train))
        network.level.fill_(math.log(2 * mean_labels))
        if adjustment is not None:
            network.adjustment.copy_(adjustment)
        super().__init__(config, problem, losses, network)
