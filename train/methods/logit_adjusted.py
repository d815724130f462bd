"""Logit adjustment: learn what a label's frequency does not tell, so that rare ones count as much.

Menon, Jayasumana, Rawat, Jain, Veit, Kumar: "Long-tail learning via logit adjustment", ICLR 2021,
on the network of `ce`: softmax cross-entropy of f + tau log pi, pi the training share of a label.
Or `--post-hoc`: the plain softmax, and f - tau log pi when predicting.

Differences from the paper: a row with several labels is as many pairs of a row and a label; a label
without training rows counts as if it had one, where the authors' program adds 1e-12 to the share.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from torch import nn

from train import methods, ranks
from train.config import require_not_negative
from train.feedforward import Loss, RowOrdering, UncalibratedConfig, label_prior, softmax_net
from train.losses import logit_adjusted
from train.method import Method
from train.problem import Problem, Shape


@dataclass(frozen=True, kw_only=True)
class Config(UncalibratedConfig):
    """Hyper-parameters of logit adjustment."""

    tau: float = 1.0
    """How much of the logarithm of a label's share is taken away; 0 is the plain softmax."""
    post_hoc: bool = False
    """Train the plain softmax and adjust the scores of predictions instead."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(self, "tau")


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained network."""
    return softmax_net(config, shape)


def loss(config: Config, problem: Problem) -> Loss:
    """The loss of logits and targets."""
    tau = 0.0 if config.post_hoc else config.tau
    over_pairs = functools.partial(logit_adjusted, prior=label_prior(problem), tau=tau)
    return ranks.on_whole_batch(over_pairs)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    losses = {"logit_adjusted": loss(config, problem)}
    adjustment = -config.tau * label_prior(problem).log() if config.post_hoc else None
    return RowOrdering(
        config, problem, losses | methods.added_losses(config.plus, problem), adjustment
    )
