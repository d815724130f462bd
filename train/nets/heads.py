"""An encoder with linear layers on what it makes of a row."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from train.batches import Inputs


class PlainRows(nn.Module):
    """No encoder: linear layers read the rows as they are."""

    def forward(self, x: Inputs) -> Inputs:
        """Return the rows, (batch, features), in the form they have."""
        return x


class Classifier(nn.Module):
    """Linear layers on an encoder: rows (batch, features) -> logits (batch, labels)."""

    def __init__(self, encoder: nn.Module, heads: nn.Module) -> None:
        super().__init__()
        self.encoder, self.heads = encoder, heads

    def forward(self, x: Inputs) -> Tensor:
        """Map rows to logits."""
        logits: Tensor = self.heads(self.encoder(x))
        return logits

    def embed(self, x: Inputs) -> Tensor:
        """Map rows to what the linear layers read, (batch, size)."""
        features = self.encoder(x)
        dense: Tensor = features if isinstance(features, Tensor) else features.to_dense()
        return dense


class AveragedHeads(nn.Module):
    """Logits of the mean probability of several linear layers.

    Its weights are found by a search, not by a loss of this network: they are buffers.
    """

    weight: Tensor  # (size, heads, labels)
    bias: Tensor  # (heads, labels)

    def __init__(self, size: int, n_labels: int, n_heads: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(size, n_heads, n_labels))
        self.register_buffer("bias", torch.zeros(n_heads, n_labels))

    def forward(self, features: Inputs) -> Tensor:
        """Map features (batch, size) to logits (batch, labels)."""
        logits = features @ self.weight.flatten(1) + self.bias.flatten()
        return mean_logit(logits.unflatten(1, self.bias.shape), dim=1)


class ProjectionHead(nn.Module):
    """A hidden layer as wide as its input, then vectors of length one.

    Xavier-uniform weights, zero biases; thrown away after contrastive training.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            linear_layer(width, width), nn.ReLU(), linear_layer(width, size)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Map features (..., width) to float32 vectors (..., size)."""
        projected: Tensor = self.layers(features)
        return functional.normalize(projected.float(), dim=-1)


def linear_layer(size: int, n_labels: int) -> nn.Linear:
    """A linear layer with Xavier-uniform weights and biases of zero."""
    layer = nn.Linear(size, n_labels)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def mean_logit(logits: Tensor, dim: int) -> Tensor:
    """The logit of the mean of sigmoid(logits) over a dimension.

    log(sum p) - log(sum (1 - p)), from logarithms throughout: p itself is 0 or 1 in float32 where
    its logit is still exact.
    """
    log_p = functional.logsigmoid(logits).logsumexp(dim)
    return log_p - functional.logsigmoid(-logits).logsumexp(dim)
