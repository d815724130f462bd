"""L2-regularised logistic regressions, one a label, all solved at once by L-BFGS.

For each label, over w and b,

    minimise   sum over rows of log(1 + exp(-t (w x + b)))  +  penalty / 2 |w|^2

with t = +1 for rows that have it and -1 for the others; the bias is not penalised. scikit-learn's
LogisticRegression minimises the same with C = 1 / penalty. Every label has a descent of its own,
with its own curvature and length of step; only the products with the rows are shared.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

MEMORY = 10
"""Steps from which the curvature is estimated."""
MOST_HALVINGS = 30
SUFFICIENT = 1e-4
"""Share of the slope that a step must gain (Armijo)."""


@dataclass(frozen=True)
class Solution:
    """Weights with the bias in the last column, (labels, size + 1), and how they were found."""

    weights: Tensor
    steps: int
    largest_slope: float
    """Greatest entry of the gradient, of the objective divided by the number of rows."""

    def logits(self, x: Tensor) -> Tensor:
        """Map rows (rows, size) to (rows, labels)."""
        return x @ self.weights[:, :-1].T + self.weights[:, -1]


class Objective:
    """The objective of each label, divided by the number of rows, and its gradient."""

    def __init__(self, x: Tensor, y: Tensor, penalty: float) -> None:
        """x: (rows, size); y: (rows, labels) of 0 and 1."""
        self.x, self.y = functional.pad(x, (0, 1), value=1.0), y
        self.share = torch.full_like(self.x[0], penalty / len(x))
        self.share[-1] = 0

    def __call__(self, weights: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Values (labels,) and gradients (labels, size + 1) of all labels or of those numbered."""
        y = self.y if labels is None else self.y[:, labels]
        logits = self.x @ weights.T
        values = (functional.softplus(logits) - y * logits).mean(0)
        slopes = ((logits.sigmoid() - y).T @ self.x) / len(self.x)
        decay = self.share * weights
        return values + (decay * weights).sum(1) / 2, slopes + decay


def solve(
    x: Tensor,
    y: Tensor,
    penalty: float,
    *,
    start: Tensor | None = None,
    max_steps: int = 200,
    tolerance: float = 1e-5,
) -> Solution:
    """Minimise the objective of every label, from `start` or from zeros.

    x: (rows, size); y: (rows, labels) of 0 and 1, of the same type. Done when no entry of a
    gradient is larger than `tolerance`, or when no label finds a better place.
    """
    objective = Objective(x, y, penalty)
    weights = x.new_zeros(y.shape[1], x.shape[1] + 1) if start is None else start
    values, slopes = objective(weights)
    memory: deque[tuple[Tensor, Tensor]] = deque(maxlen=MEMORY)
    step = 0
    while step < max_steps and slopes.abs().max() > tolerance:
        unsolved = slopes.abs().amax(1, keepdim=True) > tolerance
        # A label at its minimum would only have its steps halved, and the others wait for it.
        direction = torch.where(unsolved, _direction(slopes, memory), 0.0)
        moved, new_values, new_slopes = _search(objective, weights, values, slopes, direction)
        if torch.equal(moved, weights):
            break
        memory.append((moved - weights, new_slopes - slopes))
        weights, values, slopes, step = moved, new_values, new_slopes, step + 1
    return Solution(weights, step, float(slopes.abs().max()))


def _direction(slopes: Tensor, memory: deque[tuple[Tensor, Tensor]]) -> Tensor:
    """Minus the inverse curvature times the gradient, by the two loops of L-BFGS, of each label."""
    if not memory:
        return -slopes / _dot(slopes, slopes).sqrt().clamp(min=1)
    direction, used = -slopes, []
    for move, change in reversed(memory):
        curvature = _dot(move, change)
        # A label that stood still tells nothing about its curvature.
        scale = torch.where(curvature > 0, 1 / curvature, 0.0)
        share = scale * _dot(move, direction)
        direction = direction - share * change
        used.append((move, change, scale, share))
    move, change = memory[-1]
    size = _dot(change, change)
    direction = direction * torch.where(size > 0, _dot(move, change) / size, 1.0)
    for move, change, scale, share in reversed(used):
        direction = direction + move * (share - scale * _dot(change, direction))
    return direction


def _search(
    objective: Objective, weights: Tensor, values: Tensor, slopes: Tensor, direction: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Halve the steps of the labels that gain too little until each gains enough or gives up."""
    expected = SUFFICIENT * _dot(slopes, direction)[:, 0]
    rounding = 4 * torch.finfo(values.dtype).eps * values.abs()
    moved, length = weights + direction, 1.0
    new_values, new_slopes = objective(moved)
    left = (~(new_values <= values + expected + rounding)).nonzero()[:, 0]
    for _ in range(MOST_HALVINGS):
        if not len(left):
            return moved, new_values, new_slopes
        length /= 2
        moved[left] = weights[left] + length * direction[left]
        new_values[left], new_slopes[left] = objective(moved[left], left)
        enough = new_values <= values + length * expected + rounding
        left = left[~enough[left]]
    moved[left], new_values[left], new_slopes[left] = weights[left], values[left], slopes[left]
    return moved, new_values, new_slopes


def _dot(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum(1, keepdim=True)
