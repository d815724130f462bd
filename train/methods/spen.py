"""SPEN: an energy network trained by a structured hinge, asked by gradient descent.

Belanger and McCallum: "Structured Prediction Energy Networks", ICML 2016, in the form of SEAL's
energy-network baseline (Lee et al., NeurIPS 2022): a network trained by cross-entropy first gives
the start of the inference; then the energy network learns to score the truth above what
cost-augmented inference finds, cost 1 - F1.

Differences from the original: no entropy term and no logit iterates, Adam with clamping instead of
line search, two stages instead of three. The authors' second sigmoid on the inferred label set is
not copied.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from train.energy_learning import PretrainedConfig, Spen, spen_predictor
from train.method import Method
from train.problem import Problem, Shape

TASKS = ("multilabel", "tagging")


@dataclass(frozen=True, kw_only=True)
class Config(PretrainedConfig):
    """Hyper-parameters of SPEN."""

    inference_rate: float = 0.01
    """Step size of the inference, which is Adam on the label set."""


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained energy network with its inference."""
    return spen_predictor(config, shape)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    return Spen(config, problem)
