"""WARP: a true label weighs the more, the sooner a draw of false ones comes too close to it.

Gong, Jia, Leung, Toshev, Ioffe: "Deep Convolutional Ranking for Multilabel Image Annotation", ICLR
2014 (after Weston et al., IJCAI 2011), as in the program of RML's authors, on the network of `ce`.

Differences from that program: the true labels of a row share one random order of its false labels;
each weight has the same distribution as with an order of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from train import methods
from train.feedforward import Loss, RowOrdering, UncalibratedConfig, softmax_net
from train.losses import warp
from train.method import Method
from train.problem import Problem, Shape


@dataclass(frozen=True, kw_only=True)
class Config(UncalibratedConfig):
    """Hyper-parameters of WARP."""


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained network."""
    return softmax_net(config, shape)


def loss(config: Config, problem: Problem) -> Loss:
    """The loss of logits and targets."""
    return warp


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    losses = {"warp": loss(config, problem)}
    return RowOrdering(config, problem, losses | methods.added_losses(config.plus, problem))
