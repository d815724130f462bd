"""Networks of variational autoencoders: rows to Gaussians, and latent vectors back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

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


class LatentDecoder(nn.Module):
    """ReLU layers on a latent vector, and on the row beside it where it `sees_row`.

    The row's part of the first layer is computed once for all latent vectors of the row, and,
    unlike for a concatenation, no gradient by the row.
    """

    def __init__(
        self,
        n_features: int,
        latent: int,
        widths: Sequence[int],
        dropout: float,
        *,
        sees_row: bool = True,
    ) -> None:
        super().__init__()
        self.n_seen = n_features if sees_row else 0
        self.first = nn.Linear(self.n_seen + latent, widths[0])
        self.rest = nn.Sequential(
            nn.ReLU(), nn.Dropout(dropout), relu_layers(widths[0], widths[1:], dropout)
        )

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """Map rows (batch, features) and z (..., batch, latent) to (..., batch, last width)."""
        of_row, of_latent = self.first.weight.split([self.n_seen, z.shape[-1]], 1)
        hidden = functional.linear(z, of_latent, self.first.bias)
        if self.n_seen:
            hidden = hidden + functional.linear(x, of_row)
        decoded: Tensor = self.rest(hidden)
        return decoded
