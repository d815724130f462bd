"""A feed-forward network trained by cross-entropy: the baseline, the shortest example.

Each label is learned by itself. The network, initialisation and optimiser are those of SEAL's
task-net (Lee et al., NeurIPS 2022), so that the two differ in the loss alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from train import methods
from train.feedforward import FeedForward, FeedForwardConfig, Loss, task_net
from train.method import Method
from train.problem import Problem, Shape
from train.structures import structure_of

TASKS = ("multilabel", "segmentation", "tagging")


@dataclass(frozen=True, kw_only=True)
class Config(FeedForwardConfig):
    """Hyper-parameters of the cross-entropy baseline."""


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained network."""
    return task_net(config, shape)


def loss(config: Config, problem: Problem) -> Loss:
    """The loss of logits and targets."""
    return structure_of(problem.shape).cross_entropy


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    losses = {"cross_entropy": loss(config, problem)}
    return FeedForward(config, problem, losses | methods.added_losses(config.plus, problem))
