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

import torch
from torch import Tensor
from torch.nn import functional

from train import methods
from train.batches import Inputs
from train.config import require_not_negative
from train.feedforward import FeedForward, Loss, UncalibratedConfig, label_prior, task_net
from train.losses import logit_adjusted
from train.method import Method
from train.nets.mlp import TaskNet
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


class PostHocNet(TaskNet):
    """A task-net that adds a constant a label to its logits, but not while it is trained."""

    adjustment: Tensor

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__(shape.n_features, shape.n_labels, config.hidden, config.dropout)
        self.register_buffer("adjustment", torch.zeros(shape.n_labels))

    def finish(self, hidden: Tensor) -> Tensor:
        """Do the rest, with dropout or the adjustment."""
        logits = super().finish(hidden)
        return logits if self.training else logits + self.adjustment

    def embed(self, x: Inputs) -> Tensor:
        """Map rows to features and a 1, with which the adjustment is part of the inner product."""
        return functional.pad(super().embed(x), (0, 1), value=1.0)

    def label_embeddings(self) -> Tensor:
        """One vector a label and its adjustment, (labels, last width + 1)."""
        return torch.cat([self.labels, self.adjustment[:, None]], 1)


def predictor(config: Config, shape: Shape) -> TaskNet:
    """Build the untrained network."""
    return PostHocNet(config, shape) if config.post_hoc else task_net(config, shape)


def loss(config: Config, problem: Problem) -> Loss:
    """The loss of logits and targets."""
    tau = 0.0 if config.post_hoc else config.tau
    return functools.partial(logit_adjusted, prior=label_prior(problem), tau=tau)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    network = predictor(config, problem.shape).to(problem.device)
    if isinstance(network, PostHocNet):
        network.adjustment.copy_(-config.tau * label_prior(problem).log())
    losses = {"logit_adjusted": loss(config, problem)}
    return FeedForward(
        config, problem, losses | methods.added_losses(config.plus, problem), network
    )
