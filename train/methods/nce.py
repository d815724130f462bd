"""NCE: an energy network that ranks the truth above sampled label sets, asked by gradient descent.

The energy-network baseline of the same name in SEAL (Lee et al., NeurIPS 2022): samples come from a
frozen network trained by cross-entropy first; inference starts from three random points. It is weak
by design: it learned to tell the truth from likely label sets, while inference looks everywhere.

Differences from the authors' program: the random starts are drawn once and kept with the weights,
so that equal rows get equal answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from train.energy_learning import Nce, NceConfig, nce_predictor
from train.method import Method
from train.problem import Problem, Shape

TASKS = ("multilabel", "tagging")


@dataclass(frozen=True, kw_only=True)
class Config(NceConfig):
    """Hyper-parameters of NCE."""


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained energy network with its inference."""
    return nce_predictor(config, shape)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    return Nce(config, problem)
