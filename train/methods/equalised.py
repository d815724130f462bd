"""Equalised softmax: a rare label is hardly pushed down for the sake of others.

Tan, Wang, Li, Li, Ouyang, Yin, Yan: "Equalization Loss for Long-Tailed Object Recognition", CVPR
2020, in the form of Rawat et al., ICML 2021: log(1 + sum over y' of pi_y'^power exp(f_y' - f_y))
with pi the training share of a label, on the network of `ce`.

Differences from the papers: a row with several labels is as many pairs of a row and a label.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from torch import nn

from train import methods, ranks
from train.config import require_not_negative
from train.feedforward import Loss, RowOrdering, UncalibratedConfig, label_prior, softmax_net
from train.losses import equalised
from train.method import Method
from train.problem import Problem, Shape


@dataclass(frozen=True, kw_only=True)
class Config(UncalibratedConfig):
    """Hyper-parameters of the equalised loss."""

    power: float = 1.0
    """Of the share by which a label's push down is weighed; 0 is the plain softmax."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(self, "power")


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained network."""
    return softmax_net(config, shape)


def loss(config: Config, problem: Problem) -> Loss:
    """The loss of logits and targets."""
    over_pairs = functools.partial(equalised, prior=label_prior(problem), power=config.power)
    return ranks.on_whole_batch(over_pairs)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    losses = {"equalised": loss(config, problem)}
    return RowOrdering(config, problem, losses | methods.added_losses(config.plus, problem))
