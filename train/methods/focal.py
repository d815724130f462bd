"""Focal loss: cells that are right already count less.

Lin, Goyal, Girshick, He, Dollar: "Focal Loss for Dense Object Detection", ICCV 2017, as a
multi-label loss: -y (1-p)^gamma log p - (1-y) p^gamma log(1-p), on the network of `ce`.

Differences from the paper: no weight alpha for true cells; summed over labels, as `ce` is.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from torch import nn

from train import methods
from train.config import require_not_negative
from train.feedforward import FeedForward, FeedForwardConfig, Loss, task_net
from train.losses import focal
from train.method import Method
from train.problem import Problem, Shape


@dataclass(frozen=True, kw_only=True)
class Config(FeedForwardConfig):
    """Hyper-parameters of the focal loss."""

    gamma: float = 2.0
    """How fast a cell loses weight as it becomes right; 0 is the cross-entropy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(self, "gamma")


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained network."""
    return task_net(config, shape)


def loss(config: Config, problem: Problem) -> Loss:
    """The loss of logits and targets."""
    return functools.partial(focal, gamma=config.gamma)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    losses = {"focal": loss(config, problem)}
    return FeedForward(config, problem, losses | methods.added_losses(config.plus, problem))
