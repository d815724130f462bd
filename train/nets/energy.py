"""Energy networks over whole label sets. They return a score, s = -E: high means compatible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from train.batches import Inputs
from train.losses.samples import SparseSamples
from train.nets.mlp import FeatureNet
from train.nets.text import TextEncoder

# Below it a unit adds nothing, and soon its sigmoid is 0 in float32, which has no logarithm.
LEAST_INPUT = -80.0

Context: TypeAlias = Any  # what torch hands to a backward takes any attribute


class EnergyNet(nn.Module):
    """s(x, y) = sum_i y_i (b_i . T(x)) + v . softplus(M y + c), for y in [0, 1]^labels.

    The first term scores each label by itself, the second the label set as a whole
    (Lee et al., NeurIPS 2022, Eq. 14; the bias c is in their program and parameter counts).
    """

    def __init__(
        self,
        features: FeatureNet | TextEncoder,
        n_labels: int,
        global_units: int,
    ) -> None:
        super().__init__()
        self.features = features
        self.labels = nn.Parameter(torch.empty(n_labels, features.width))  # b
        # M, with a row a label like b: a sparse label set reads whole rows of it.
        self.joint = nn.Parameter(torch.empty(n_labels, global_units))
        self.joint_bias = nn.Parameter(torch.zeros(global_units))  # c
        self.joint_weight = nn.Parameter(torch.empty(global_units))  # v
        nn.init.xavier_uniform_(self.labels)
        # Units are fed by all labels: for a matrix held this way, torch calls that the fan-out.
        nn.init.kaiming_uniform_(self.joint, mode="fan_out", nonlinearity="relu")
        nn.init.normal_(self.joint_weight, std=(2 / global_units) ** 0.5)

    def forward(self, x: Inputs, y: Tensor | SparseSamples) -> Tensor:
        """Score label sets `y`, (batch, labels) or (batch, K, labels), for rows x: (batch[, K])."""
        if isinstance(y, SparseSamples):
            return self._sparse(self.features(x), y)
        return self.at(x)(y)

    def at(self, x: Inputs) -> Callable[[Tensor], Tensor]:
        """Bind the rows: their features are computed once for all label sets asked afterwards."""
        local = functional.linear(self.features(x), self.labels)  # (batch, labels)
        joint, bias, weight = self.joint, self.joint_bias, self.joint_weight

        def score(y: Tensor) -> Tensor:
            sets = "bkl,bl->bk" if y.dim() == 3 else "bl,bl->b"
            units = functional.softplus(y @ joint + bias)
            return torch.einsum(sets, y, local) + units @ weight

        return score

    def _sparse(self, hidden: Tensor, y: SparseSamples) -> Tensor:
        joint = y.sum_over_labels(self.joint)
        joint_score: Tensor = _JointScore.apply(  # type: ignore[no-untyped-call]
            joint, self.joint_bias, self.joint_weight
        )
        return y.sum_of_products(hidden, self.labels) + joint_score


class _JointScore(torch.autograd.Function):
    """v . softplus(z + c), with value and slope from one sigmoid; takes z's memory."""

    @staticmethod
    def forward(ctx: Context, z: Tensor, c: Tensor, v: Tensor) -> Tensor:
        units = z.detach().add_(c).clamp_min_(LEAST_INPUT)
        slope = units.sigmoid()
        units.sub_(slope.log())
        ctx.save_for_backward(units, slope, v)
        return units @ v

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        units, slope, v = ctx.saved_tensors
        of_z = (slope * v).mul_(gradient.unsqueeze(-1))
        of_c = of_z.flatten(0, -2).sum(0)
        of_v = gradient.flatten() @ units.flatten(0, -2)
        return of_z, of_c, of_v
