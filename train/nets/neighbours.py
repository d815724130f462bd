"""The nearest stored points of a row, the same ones in every runtime."""

from __future__ import annotations

import torch
from torch import Tensor

# Distances equal in their first 24 bits count as ties, and the lower index wins. 2^-46 for each
# index stays below what tells two such distances apart, for up to 2^21 points, and above the
# 53 bits of a float64.
TIE_STEP = 2.0**-46
LEAST_DISTANCE = 1e-30


def squared_distances(x: Tensor, points: Tensor) -> Tensor:
    """Squared Euclidean distances of x (batch, width) to points (n, width): (batch, n) float64.

    By a matrix product, in float64: in float32 its rounding, which differs from runtime to
    runtime and with the size of a batch, would now and then exchange two neighbours.
    """
    x, points = x.double(), points.double()
    squares = x.square().sum(1, keepdim=True) + points.square().sum(1)
    return (squares - 2 * (x @ points.T)).clamp(min=0)


def nearest(distances: Tensor, k: int) -> Tensor:
    """The indices of the k least distances of each row, (batch, k); of equals those of low index.

    torch leaves open which of equal values it takes, and rows of zeros and ones have many.
    """
    rounded = distances.float().clamp(min=LEAST_DISTANCE).double()
    index = torch.arange(distances.shape[1], dtype=torch.float64, device=distances.device)
    return torch.topk(rounded * (1 + TIE_STEP * index), k, dim=1, largest=False).indices
