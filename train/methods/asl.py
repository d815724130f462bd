"""Asymmetric loss: false labels that are easily told count next to nothing.

Ridnik, Ben-Baruch, Zamir, Noy, Friedman, Protter, Zelnik-Manor: "Asymmetric Loss For Multi-Label
Classification", ICCV 2021, on the network of `ce`.

    symbol    here
    gamma+    positive_gamma
    gamma-    negative_gamma
    m         shift

Differences from the authors' program: no clamped logarithms; a mean over rows, not a sum.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from torch import nn

from train import methods
from train.config import require_fraction, require_not_negative
from train.feedforward import FeedForward, Loss, UncalibratedConfig, task_net
from train.losses import asymmetric
from train.method import Method
from train.problem import Problem, Shape


@dataclass(frozen=True, kw_only=True)
class Config(UncalibratedConfig):
    """Hyper-parameters of the asymmetric loss."""

    positive_gamma: float = 1.0
    """How fast a true label loses weight as its probability grows."""
    negative_gamma: float = 4.0
    """How fast a false label loses weight as its probability falls."""
    shift: float = 0.05
    """Subtracted from the probability of a false label; one below it costs nothing."""
    detach_weight: bool = False
    """Let no gradient through the weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(self, "positive_gamma", "negative_gamma")
        require_fraction(self, "shift")


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained network."""
    return task_net(config, shape)


def loss(config: Config, problem: Problem) -> Loss:
    """The loss of logits and targets."""
    return functools.partial(
        asymmetric,
        positive_gamma=config.positive_gamma,
        negative_gamma=config.negative_gamma,
        shift=config.shift,
        detach_weight=config.detach_weight,
    )


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    losses = {"asymmetric": loss(config, problem)}
    return FeedForward(config, problem, losses | methods.added_losses(config.plus, problem))
