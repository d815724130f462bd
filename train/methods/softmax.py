"""Softmax: the labels of a row share one distribution, evenly over the true ones.

The multi-label softmax of Gong, Jia, Leung, Toshev, Ioffe: "Deep Convolutional Ranking for
Multilabel Image Annotation", ICLR 2014: -1/|P| sum over true labels p of log softmax_p, on the
network of `ce`.

Differences from the authors' program: no constant inside the logarithm; rows without labels are no
part of the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from train import methods, ranks
from train.feedforward import Loss, RowOrdering, UncalibratedConfig, softmax_net
from train.losses import multi_label_softmax
from train.method import Method
from train.problem import Problem, Shape


@dataclass(frozen=True, kw_only=True)
class Config(UncalibratedConfig):
    """Hyper-parameters of the softmax loss."""


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained network."""
    return softmax_net(config, shape)


def loss(config: Config, problem: Problem) -> Loss:
    """The loss of logits and targets."""
    return ranks.on_whole_batch(multi_label_softmax)  # a mean over rows that have a label


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    losses = {"softmax": loss(config, problem)}
    return RowOrdering(config, problem, losses | methods.added_losses(config.plus, problem))
