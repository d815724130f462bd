"""Two-way loss: true above false labels in each row, true above false rows in each label.

Kobayashi: "Two-Way Multi-Label Loss", CVPR 2023, on the network of `ce`.

    symbol      here
    T_P, T_N    pos_temp, neg_temp
    epsilon     margin
    sample-wise, class-wise    --level sample, --level class: each row's labels, each label's rows

Differences from the authors' program: what is masked is so by -inf, not by -100, which leaks where
logits are large; a batch without any label has a loss of 0, not NaN.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from torch import nn

from train import methods, ranks
from train.config import require_positive
from train.feedforward import (
    FeedForward,
    Loss,
    RowOrdering,
    UncalibratedConfig,
    softmax_net,
    task_net,
)
from train.losses import label_wise, row_wise, two_way
from train.method import Method
from train.problem import Problem, Shape


@dataclass(frozen=True, kw_only=True)
class Config(UncalibratedConfig):
    """Hyper-parameters of the two-way loss."""

    level: Literal["sample", "class", "both"] = "both"
    """Order the labels of each row (`sample`), the rows of each label (`class`), or both."""
    pos_temp: float = 4.0
    """Temperature of true labels; the lower, the more the lowest of them counts alone."""
    neg_temp: float = 1.0
    """Temperature of false labels; the lower, the more the highest of them counts alone."""
    margin: float = 0.0
    """By how much every true label is to score above the false ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "pos_temp", "neg_temp")


LOSSES = {"sample": row_wise, "class": label_wise, "both": two_way}


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained network."""
    return softmax_net(config, shape) if config.level == "sample" else task_net(config, shape)


def loss(config: Config, problem: Problem) -> Loss:
    """The loss of logits and targets."""
    two_way_loss = functools.partial(
        LOSSES[config.level],
        positive_temperature=config.pos_temp,
        negative_temperature=config.neg_temp,
        margin=config.margin,
    )
    return ranks.on_whole_batch(two_way_loss)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    losses = {"two_way": loss(config, problem)}
    # Without the rows of a label, the level of a row's logits is open.
    kind = RowOrdering if config.level == "sample" else FeedForward
    return kind(config, problem, losses | methods.added_losses(config.plus, problem))
