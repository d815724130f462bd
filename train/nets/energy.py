"""Energy networks over whole label sets. They return a score, s = -E: high means compatible."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from train.nets.mlp import FeatureNet


class EnergyNet(nn.Module):
    """s(x, y) = sum_i y_i (b_i . T(x)) + v . softplus(M y + c), for y in [0, 1]^labels.

    The first term scores each label by itself, the second the label set as a whole
    (Lee et al., NeurIPS 2022, Eq. 14; the bias c is in their program and parameter counts).
    """

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        widths: Sequence[int],
        dropout: float,
        global_units: int,
    ) -> None:
        super().__init__()
        self.features = FeatureNet(n_features, widths, dropout)
        self.labels = nn.Parameter(torch.empty(n_labels, widths[-1]))  # b
        self.joint = nn.Linear(n_labels, global_units)  # M, c
        self.joint_weight = nn.Parameter(torch.empty(global_units))  # v
        nn.init.xavier_uniform_(self.labels)
        nn.init.kaiming_uniform_(self.joint.weight, nonlinearity="relu")
        nn.init.zeros_(self.joint.bias)
        nn.init.normal_(self.joint_weight, std=(2 / global_units) ** 0.5)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Score label sets `y`, (batch, labels) or (batch, K, labels), for rows x: (batch[, K])."""
        local = functional.linear(self.features(x), self.labels)  # (batch, labels)
        if y.dim() == 3:
            local_score = torch.einsum("bkl,bl->bk", y, local)
        else:
            local_score = (y * local).sum(-1)
        return local_score + functional.softplus(self.joint(y)) @ self.joint_weight
