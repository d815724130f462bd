"""Networks of variational autoencoders: rows to Gaussians, and latent vectors back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from train.losses.variational import Gaussian
from train.nets.mlp import dropout


class Dropout(nn.Module):
    """What `nn.Dropout` does, faster on a CPU."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """Drop a share of the units in training, and scale the others up."""
        return dropout(x, self.share) if self.training and self.share else x


def relu_layers(n_inputs: int, widths: Sequence[int], share: float) -> nn.Sequential:
    """Linear layers, each with ReLU and dropout: (batch, n_inputs) -> (batch, last width)."""
    layers: list[nn.Module] = []
    for before, after in pairwise([n_inputs, *widths]):
        layers += [nn.Linear(before, after), nn.ReLU(), Dropout(share)]
    return nn.Sequential(*layers)


class GaussianNet(nn.Module):
    """ReLU layers, then mean and log-variance of a Gaussian with independent components."""

    def __init__(self, n_inputs: int, widths: Sequence[int], latent: int, share: float) -> None:
        super().__init__()
        self.layers = relu_layers(n_inputs, widths, share)
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
        share: float,
        *,
        sees_row: bool = True,
    ) -> None:
        super().__init__()
        self.of_latent = nn.Linear(latent, widths[0])
        self.of_row = nn.Linear(n_features, widths[0], bias=False) if sees_row else None
        if self.of_row is not None:
            # The initial weights of one layer on both.
            bound = (n_features + latent) ** -0.5
            for parameter in (*self.of_latent.parameters(), self.of_row.weight):
                nn.init.uniform_(parameter, -bound, bound)
        self.rest = nn.Sequential(
            nn.ReLU(), Dropout(share), relu_layers(widths[0], widths[1:], share)
        )

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """Map rows (batch, features) and z (..., batch, latent) to (..., batch, last width)."""
        hidden = self.of_latent(z)
        if self.of_row is not None:
            hidden = hidden + self.of_row(x)
        decoded: Tensor = self.rest(hidden)
        return decoded
