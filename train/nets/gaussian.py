"""Networks that map rows to Gaussians, and the ReLU layers they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from train.losses.variational import Gaussian


def relu_layers(n_inputs: int, widths: Sequence[int], dropout: float) -> nn.Sequential:
    """Linear layers, each with ReLU and dropout: (batch, n_inputs) -> (batch, last width)."""
    layers: list[nn.Module] = []
    for before, after in pairwise([n_inputs, *widths]):
        layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


class GaussianNet(nn.Module):
    """ReLU layers, then mean and log-variance of a Gaussian with independent components."""

    def __init__(self, n_inputs: int, widths: Sequence[int], latent: int, dropout: float) -> None:
        super().__init__()
        self.layers = relu_layers(n_inputs, widths, dropout)
        self.mean = nn.Linear(widths[-1], latent)
        self.log_variance = nn.Linear(widths[-1], latent)

    def forward(self, x: Tensor) -> Gaussian:
        """Map rows (batch, n_inputs) to Gaussians, (batch, latent) each."""
        hidden = self.layers(x)
        return Gaussian(self.mean(hidden), self.log_variance(hidden))
