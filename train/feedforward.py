"""The plain network that most methods train: one pass from a row to a score for every label.

A method that is no more than a loss on it is a `Config` and that loss, see `train/methods/ce.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from train.batches import Inputs
from train.config import TokenConfig, require_fraction, require_positive
from train.method import Method
from train.nets.mlp import FeatureNet, TaskNet
from train.nets.text import TextEncoder
from train.optimizer import TaskOptimizer, parameter_groups
from train.problem import Problem, Shape

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

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "lr")
        require_fraction(self, "dropout")


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


def task_net(config: Widths, shape: Shape) -> TaskNet:
    """Build the untrained network."""
    return TaskNet(feature_net(config, shape), shape.n_labels)


class FeedForward(Method):
    """A task-net trained by a loss, or by the sum of several."""

    def __init__(
        self, config: FeedForwardConfig, problem: Problem, losses: Mapping[str, Loss]
    ) -> None:
        self.losses = losses
        self.predictor = task_net(config, problem.shape).to(problem.device)
        self.optimizer = TaskOptimizer(
            parameter_groups(self.predictor, encoder_lr=config.encoder_lr),
            lr=config.lr,
            weight_decay=config.weight_decay,
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
        """Halve the rate on a plateau."""
        self.optimizer.end_epoch(validation_score)
