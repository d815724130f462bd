"""RML: WARP with a cost that hardly grows beyond a margin, plus the same of each label by itself.

Cevikalp, Benligiray, Gerek: "Semi-supervised robust deep neural networks for multi-label image
classification", Pattern Recognition 2020: its supervised form, as in the authors' program, on the
network of `ce`.

    symbol    here
    C_u       label_weight

Differences from that program: those of `warp`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from torch import nn

from train import methods
from train.config import require_not_negative
from train.feedforward import FeedForward, Loss, UncalibratedConfig, task_net
from train.losses import rml
from train.method import Method
from train.problem import Problem, Shape


@dataclass(frozen=True, kw_only=True)
class Config(UncalibratedConfig):
    """Hyper-parameters of RML."""

    label_weight: float = 5.0
    """Weight of each label's own cost, beside the cost of pairs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(self, "label_weight")


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained network."""
    return task_net(config, shape)


def loss(config: Config, problem: Problem) -> Loss:
    """The loss of logits and targets."""
    return functools.partial(rml, label_weight=config.label_weight)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    losses = {"rml": loss(config, problem)}
    return FeedForward(config, problem, losses | methods.added_losses(config.plus, problem))
