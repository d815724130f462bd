"""Adaptive margin: the rarer a label, the further it must be above all others.

Cao, Wei, Gaidon, Arechiga, Ma: "Learning Imbalanced Datasets with Label-Distribution-Aware Margin
Loss", NeurIPS 2019, in the form of Rawat et al., ICML 2021: log(1 + rho_y sum over y' of
exp(f_y' - f_y)), rho_y proportional to pi_y^-power, pi the training share of a label, on the
network of `ce`.

Differences from the papers: rho has the mean 1 over the training pairs; a row with several labels
is as many pairs of a row and a label.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from torch import nn

from train import methods, ranks
from train.config import require_not_negative
from train.feedforward import Loss, RowOrdering, UncalibratedConfig, label_prior, softmax_net
from train.losses import adaptive_margin
from train.method import Method
from train.problem import Problem, Shape


@dataclass(frozen=True, kw_only=True)
class Config(UncalibratedConfig):
    """Hyper-parameters of the adaptive-margin loss."""

    power: float = 0.25
    """How fast the margin grows as a label becomes rare; 0 is the plain softmax."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(self, "power")


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained network."""
    return softmax_net(config, shape)


def loss(config: Config, problem: Problem) -> Loss:
    """The loss of logits and targets."""
    over_pairs = functools.partial(adaptive_margin, prior=label_prior(problem), power=config.power)
    return ranks.on_whole_batch(over_pairs)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    losses = {"adaptive_margin": loss(config, problem)}
    return RowOrdering(config, problem, losses | methods.added_losses(config.plus, problem))
