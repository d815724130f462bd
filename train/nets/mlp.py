"""Feed-forward networks: features of a row, and one score a label."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class FeatureNet(nn.Module):
    """T(x) of SEAL: softplus layers, dropout after each but the last.

    Weights are Kaiming-uniform with the gain of ReLU, biases zero.
    """

    def __init__(self, n_features: int, widths: Sequence[int], dropout: float) -> None:
        super().__init__()
        layers = [nn.Linear(before, after) for before, after in pairwise([n_features, *widths])]
        for layer in layers:
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
        self.layers = nn.ModuleList(layers)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (batch, features) to hidden features (batch, last width)."""
        for i, layer in enumerate(self.layers):
            if i > 0:
                x = functional.dropout(x, self.dropout, self.training)
            x = functional.softplus(layer(x))
        return x


class TaskNet(nn.Module):
    """F(x) of SEAL: hidden features times one vector a label, without a bias."""

    def __init__(
        self, n_features: int, n_labels: int, widths: Sequence[int], dropout: float
    ) -> None:
        super().__init__()
        self.features = FeatureNet(n_features, widths, dropout)
        self.labels = nn.Parameter(torch.empty(n_labels, widths[-1]))
        nn.init.xavier_uniform_(self.labels)

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (batch, features) to logits (batch, labels)."""
        return functional.linear(self.features(x), self.labels)

    def label_embeddings(self) -> Tensor:
        """One vector a label, (labels, last width)."""
        return self.labels
