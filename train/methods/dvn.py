"""DVN: an energy network that estimates the F1 of a label set, asked by gradient descent.

Gygli, Norouzi and Angelova: "Deep Value Networks Learn to Evaluate and Iteratively Refine
Structured Outputs", ICML 2017, in the form of SEAL's energy-network baseline (Lee et al., NeurIPS
2022): each row is learned from what inference finds, from what maximises the regression loss, and
from the truth.

Differences from the original: Adam with clamping instead of plain ascent, all three kinds of label
sets in every batch. The adversarial label set really follows the gradient of
the loss (the authors' program follows that of the inference).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from train.energy_learning import Dvn, DvnConfig, dvn_predictor
from train.method import Method
from train.problem import Problem, Shape

TASKS = ("multilabel", "segmentation", "tagging")


@dataclass(frozen=True, kw_only=True)
class Config(DvnConfig):
    """Hyper-parameters of DVN."""


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained energy network with its inference."""
    return dvn_predictor(config, shape)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    return Dvn(config, problem)
