"""BR: one logistic regression a label, each label by itself.

Binary relevance, the first baseline of most multi-label papers. For each label

    minimise over w, b   sum over rows of log(1 + exp(-t (w x + b)))  +  penalty / 2 |w|^2

with t = +1 for rows that have it and -1 for the others; the bias is not penalised. scikit-learn's
LogisticRegression minimises the same with C = 1 / penalty. All labels are solved together, as the
columns of one matrix: they share no parameter, so their sum is least where each of them is.
The penalty is one of `--penalties`, the same for all labels: the best by the cross-entropy of the
validation rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from train.batches import SparseRows, in_order
from train.config import MethodConfig, require_positive
from train.errors import ConfigError
from train.problem import Part, Problem, Shape

BATCH = 2048
"""Rows whose logits are in memory at a time; every step still sees all of them."""


@dataclass(frozen=True, kw_only=True)
class Config(MethodConfig):
    """Hyper-parameters of BR."""

    penalties: tuple[float, ...] = (300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3)
    """Weights of the L2 penalty to choose from on validation rows."""
    max_steps: int = 300
    """Steps of L-BFGS for each penalty, at most."""
    tolerance: float = 1e-4
    """Solved when no entry of the gradient, for the mean over rows, is larger."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "max_steps", "tolerance")
        if not self.penalties or min(self.penalties) <= 0:
            raise ConfigError(f"--penalties must be positive, got {self.penalties}")


def predictor(config: Config, shape: Shape) -> nn.Linear:
    """Build the untrained predictor, one linear layer of zeros."""
    layer = nn.Linear(shape.n_features, shape.n_labels)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def fit(config: Config, problem: Problem) -> nn.Module:
    """Solve from the strongest penalty to the weakest, as long as validation gets better.

    Each solution is the start of the next. Along such a path the validation loss falls and then
    rises, so the first rise ends it.
    """
    layer = predictor(config, problem.shape).to(problem.device).requires_grad_(False)
    _start_from_frequencies(layer, problem)
    train, validation = (
        _Loss(part, problem.device) for part in (problem.train, problem.validation)
    )
    best_loss, best_weights = math.inf, dict(layer.state_dict())
    for penalty in sorted(config.penalties, reverse=True):
        _solve(layer, train, penalty, config)
        loss = float(validation(layer)[0])
        if loss >= best_loss:
            break
        best_loss = loss
        best_weights = {name: value.clone() for name, value in layer.state_dict().items()}
    layer.load_state_dict(best_weights)
    return layer


def _start_from_frequencies(layer: nn.Linear, problem: Problem) -> None:
    """Begin where only the bias is solved; one row more of each kind keeps it finite."""
    counts = torch.from_numpy(problem.train.targets.sum(0).astype(np.float32))
    odds = (counts + 1) / (len(problem.train) - counts + 1)
    layer.bias.copy_(odds.log())


def _solve(layer: nn.Linear, train: _Loss, penalty: float, config: Config) -> None:
    """Minimise the objective, divided by the number of rows, from where the layer is."""
    optimizer = torch.optim.LBFGS(
        [layer.weight, layer.bias],
        max_iter=config.max_steps,
        tolerance_grad=config.tolerance,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )
    share = penalty / train.n_rows

    def objective() -> Tensor:
        loss, weight_slope, bias_slope = train(layer)
        layer.weight.grad = weight_slope + share * layer.weight
        layer.bias.grad = bias_slope
        return loss + share / 2 * layer.weight.square().sum()

    optimizer.step(objective)


class _Loss:
    """Cross-entropy of some rows, summed over labels, mean over rows, with its gradient.

    By hand, because rows that are sparse stay sparse: with one value in thirty this is several
    times faster than a dense product.
    """

    def __init__(self, part: Part, device: torch.device) -> None:
        self.part, self.n_rows, self.device = part, len(part), device
        self.batches = [index.to(device) for index in in_order(len(part), BATCH)]
        is_sparse = isinstance(part.x, SparseRows)
        rows = [part.x.take(index) for index in self.batches]
        self.rows = [x.to_sparse() for x in rows] if is_sparse else rows
        self.columns = [x.T.to_sparse() if is_sparse else x.T for x in rows]

    def __call__(self, layer: nn.Linear) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, and its gradients for weight and bias."""
        weight_slope, bias_slope = torch.zeros_like(layer.weight), torch.zeros_like(layer.bias)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for index, x, columns in zip(self.batches, self.rows, self.columns, strict=True):
            # float64, because near the optimum one step hardly changes the loss.
            logits = (x @ layer.weight.T + layer.bias).double()
            y = self.part.y.take(index).double()
            total += (functional.softplus(logits) - y * logits).sum() / self.n_rows
            slope = ((logits.sigmoid() - y) / self.n_rows).float()
            weight_slope += (columns @ slope).T
            bias_slope += slope.sum(0)
        return total, weight_slope, bias_slope
