"""Feed-forward networks: features of a row, and one score a label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from train.batches import Inputs
from train.nets.text import TextEncoder

Activation: TypeAlias = Callable[[Tensor], Tensor]
INITIALISED_UNITS = 16
LEAST_DEVIATION = 1e-6


def dropout(x: Tensor, share: float) -> Tensor:
    """Set a share of the values to zero and scale the others up, as torch's own does."""
    # Comparing uniform numbers is some three times faster on a CPU than torch's Bernoulli ones.
    kept = torch.rand_like(x) >= share
    return x * kept.mul(1 / (1 - share))


class InputLayer(nn.Module):
    """x W + b for rows that may be sparse: W has a row a feature, of which zeros read none."""

    def __init__(self, n_features: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_features, width))
        # Some units at a time: a second matrix of this size may be too much. Where only its size is
        # asked for there are none.
        parts = () if self.weight.is_meta else self.weight.detach().t().split(INITIALISED_UNITS)
        for units in parts:
            drawn = torch.empty(units.shape)
            units.copy_(nn.init.kaiming_uniform_(drawn, nonlinearity="relu"))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Inputs) -> Tensor:
        """Map rows (batch, features) to (batch, width)."""
        return x @ self.weight + self.bias

    @torch.no_grad()
    def scale_to(self, x: Inputs) -> None:
        """Scale the first weights until what these rows are mapped to has the deviation 1.

        Weights drawn for a million features hardly answer to the twenty that a sparse row has.
        """
        self.weight.div_(self(x).std().clamp_min(LEAST_DEVIATION))


class FeatureNet(nn.Module):
    """T(x) of SEAL: softplus layers unless told, dropout after each but the last.

    Weights are Kaiming-uniform with the gain of ReLU, biases zero.
    """

    def __init__(
        self,
        n_features: int,
        widths: Sequence[int],
        dropout: float,
        activation: Activation = functional.softplus,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.input = InputLayer(n_features, widths[0])
        layers = [nn.Linear(before, after) for before, after in pairwise(widths)]
        for layer in layers:
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
        self.layers = nn.ModuleList(layers)
        self.dropout, self.width = dropout, widths[-1]

    def forward(self, x: Inputs) -> Tensor:
        """Map rows (batch, features) to hidden features (batch, last width)."""
        return self.finish(self.begin(x))

    def begin(self, x: Inputs) -> Tensor:
        """Do what lies before any dropout, and so is the same in every pass: (batch, width)."""
        return self.activation(self.input(x))

    def finish(self, hidden: Tensor) -> Tensor:
        """Do the rest."""
        for layer in self.layers:
            if self.training and self.dropout:
                hidden = dropout(hidden, self.dropout)
            hidden = self.activation(layer(hidden))
        return hidden


class TaskNet(nn.Module):
    """F(x) of SEAL: hidden features times one vector a label, without a bias."""

    def __init__(self, features: FeatureNet | TextEncoder, n_labels: int) -> None:
        super().__init__()
        self.features: Any = features
        self.labels = nn.Parameter(torch.empty(n_labels, features.width))
        nn.init.xavier_uniform_(self.labels)

    def forward(self, x: Inputs) -> Tensor:
        """Map rows (batch, features) to logits (batch, labels)."""
        return self.finish(self.begin(x))

    def begin(self, x: Inputs) -> Tensor:
        """Do what is the same in every pass; see `FeatureNet`."""
        begun: Tensor = self.features.begin(x)
        return begun

    def finish(self, hidden: Tensor) -> Tensor:
        """Do the rest, with dropout of its own."""
        return functional.linear(self.features.finish(hidden), self.labels)

    def embed(self, x: Inputs) -> Tensor:
        """Map rows to what their logits are the inner products of, with `label_embeddings`."""
        features: Tensor = self.features(x)
        return features

    def label_embeddings(self) -> Tensor:
        """One vector a label, (labels, last width)."""
        return self.labels
