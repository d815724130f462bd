"""Gradient-based inference: the label set that an energy network likes best, found by descent.

What is minimised is a function of label sets alone; four are made here from the scores that an
energy network gives label sets of some rows, `net.at(x)`:

    score_energy             -s                 SPEN, NCE
    value_energy             -sigmoid(s)        DVN
    cost_augmented_energy    -s - cost          training of SPEN
    adversarial_energy       -regression loss   training of DVN
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from train.batches import TokenBatch

Energy: TypeAlias = Callable[[Tensor], Tensor]
"""Label sets (batch, starts, labels) -> what is to be low, (batch, starts)."""

Score: TypeAlias = Callable[[Tensor], Tensor]
"""Label sets (batch, starts, labels) of certain rows -> scores (batch, starts)."""

Comparison: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Label sets (batch, starts, labels) and the truth (batch, labels) -> (batch, starts)."""

Rule: TypeAlias = Literal["adam", "gradient"]
"""How a gradient becomes a step: Adam with its usual constants, or step size times gradient."""

DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8

# Inference often ends at exactly 0 or 1, whose logits are infinite; a score moves by 1e-6 at most.
LEAST_DISTANCE = 1e-6


def score_energy(score: Score) -> Energy:
    """-s(x, y): for networks trained to rank or to keep a margin."""
    return lambda y: -score(y)


def value_energy(score: Score) -> Energy:
    """-sigmoid(s(x, y)): for networks whose score is the logit of a value."""
    return lambda y: -score(y).sigmoid()


def cost_augmented_energy(score: Score, truth: Tensor, cost: Comparison) -> Energy:
    """-s(x, y) - cost(y, truth): low where a label set is liked and wrong."""
    return lambda y: -score(y) - cost(y, truth)


def adversarial_energy(score: Score, truth: Tensor, value: Comparison) -> Energy:
    """Minus the regression loss of s(x, y) with value(y, truth): low where the network errs most.

    Unlike in training, the value is no constant: the descent feels how it changes with y.
    """

    def energy(y: Tensor) -> Tensor:
        scores = score(y)
        return value(y, truth) * scores - functional.softplus(scores)

    return energy


Projection: TypeAlias = Callable[[Tensor], Tensor]
"""Any point (..., labels) -> the nearest one that is a label set."""


def unit_interval(y: Tensor) -> Tensor:
    """The nearest label sets where labels are free of each other: each in [0, 1]."""
    return y.clamp(0, 1)


def gradient_inference(
    energy: Energy,
    start: Tensor,
    *,
    steps: int,
    step_size: float,
    rule: Rule = "adam",
    project: Projection = unit_interval,
) -> Tensor:
    """Descend from every start among label sets and return each row's best: (batch, labels).

    The best is the one of lowest energy among all starts and steps, from the starts themselves
    to the points after the last step; the earliest of equals. (SEAL's program never looks at the
    last points.) Rows and starts do not influence each other as long as `energy` keeps them
    apart. Nothing but y is differentiated: networks inside `energy` get no gradient, and the
    result carries none.

    start: (batch, starts, labels) in [0, 1]; more dimensions may stand in the place of labels.
    """
    points = descent(energy, start, steps=steps, step_size=step_size, rule=rule, project=project)
    return best_point(points)


def best_point(points: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Return each row's point of lowest energy among those of a descent: (batch, labels)."""
    points = iter(points)
    best, lowest = next(points)
    for y, energies in points:
        best, lowest = _keep_lower(best, lowest, y, energies)
    return _best_start(best, lowest)


def descent(
    energy: Energy,
    start: Tensor,
    *,
    steps: int,
    step_size: float,
    rule: Rule = "adam",
    project: Projection = unit_interval,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield every point of the way and its energy: `start`, and that after each step.

    Points have the shape of `start`, (batch, starts, labels), energies (batch, starts).
    """
    y = start.detach()
    mean, square = torch.zeros_like(y), torch.zeros_like(y)
    for step in range(1, steps + 1):
        energies, gradient = _energies_and_gradient(energy, y)
        yield y, energies
        if rule == "adam":
            mean = DECAY * mean + (1 - DECAY) * gradient
            square = SQUARE_DECAY * square + (1 - SQUARE_DECAY) * gradient.square()
            gradient = _adam_direction(mean, square, step)
        y = project(y - step_size * gradient)
    with torch.no_grad():
        energies = energy(y)
    yield y, energies


def _energies_and_gradient(energy: Energy, y: Tensor) -> tuple[Tensor, Tensor]:
    # Predictors run without gradients; the descent needs its own.
    with torch.enable_grad():
        y = y.detach().requires_grad_()
        energies = energy(y)
        (gradient,) = torch.autograd.grad(energies.sum(), y)
    return energies.detach(), gradient


def _adam_direction(mean: Tensor, square: Tensor, step: int) -> Tensor:
    """Adam's moments, freed of their start at zero; `torch.optim` cannot be traced for export."""
    root = (square / (1 - SQUARE_DECAY**step)).sqrt()
    # mean / (root + EPSILON), extended by 1 / EPSILON: the optimiser of the ONNX exporter takes an
    # addend of 1e-8 for zero and drops it, which makes 0/0 of a gradient of 0.
    return mean / ((1 - DECAY**step) * EPSILON) / (root / EPSILON + 1)


def _keep_lower(best: Tensor, lowest: Tensor, y: Tensor, energies: Tensor) -> tuple[Tensor, Tensor]:
    lower = energies < lowest  # (batch, starts)
    spread = lower.reshape(lower.shape + (1,) * (y.dim() - 2))
    return torch.where(spread, y, best), torch.where(lower, energies, lowest)


def _best_start(best: Tensor, lowest: Tensor) -> Tensor:
    flat = best.flatten(2)  # (batch, starts, labels)
    chosen = lowest.argmin(1)[:, None, None].expand(-1, 1, flat.shape[2])
    return flat.gather(1, chosen).reshape(best.shape[:1] + best.shape[2:])


class GradientInference(nn.Module):
    """A predictor made of an energy network: rows in, logits of the best label sets out.

    energy_net: offers `at(x)`, the scores of label sets for the rows x, made of its weights as
        they are at the call.

    start: where every row's descent begins, (starts, labels), such as zeros or points drawn once
        at random: it is kept with the weights, so that equal rows always get equal answers. Or a
        network rows -> logits, kept too, whose probabilities are the one start of a row.
    energy: `score_energy` or `value_energy`, by what the network was trained for.

    The descent runs in float64 whatever the weights are: Adam divides small gradients by their own
    size and the best of many near-equal points is taken, so that in float32 the rounding of one
    batch size or runtime against another would show in the second digit of a score. With `dtype`
    float32 it does; convolutions run so, for which ONNX Runtime has no other.

    The logits lie within +-13.9, also where the best label set holds 0 or 1: there they are the
    logits of 1e-6 and 1 - 1e-6.
    """

    def __init__(  # noqa: PLR0913 - all of them are the way of one descent
        self,
        energy_net: nn.Module,
        start: Tensor | nn.Module,
        *,
        steps: int,
        step_size: float,
        energy: Callable[[Score], Energy] = score_energy,
        rule: Rule = "adam",
        project: Projection = unit_interval,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        self.energy_net, self.dtype = energy_net, dtype
        self.steps, self.step_size, self.energy = steps, step_size, energy
        self.rule, self.project = rule, project
        if isinstance(start, nn.Module):
            self.start = start
        else:
            self.register_buffer("start", start.detach().clone())

    def forward(self, x: Tensor | TokenBatch) -> Tensor:
        """Map rows (batch, features) to logits (batch, labels)."""
        return self._logits(gradient_inference(*self._problem(x), **self._way()), x)

    def with_path(self, x: Tensor | TokenBatch) -> tuple[Tensor, Tensor]:
        """Return every point of the way beside the logits: (batch, 1 + steps, starts, labels)."""
        points = list(descent(*self._problem(x), **self._way()))
        path = torch.stack([y for y, _ in points], 1)
        return self._logits(best_point(points), x), path

    @staticmethod
    def _logits(y: Tensor, x: Tensor | TokenBatch) -> Tensor:
        dtype = x.dtype if isinstance(x, Tensor) else torch.float32
        return torch.logit(y, LEAST_DISTANCE).to(dtype)

    def _problem(self, x: Tensor | TokenBatch) -> tuple[Energy, Tensor]:
        exact = x.to(self.dtype) if isinstance(x, Tensor) else x
        score = _in(self.dtype, _Binding(self.energy_net), exact)
        return self.energy(score), self._start(exact)

    def _way(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "step_size": self.step_size,
            "rule": self.rule,
            "project": self.project,
        }

    def _start(self, x: Tensor | TokenBatch) -> Tensor:
        if isinstance(self.start, nn.Module):
            logits: Tensor = _in(self.dtype, self.start, x)
            return logits.sigmoid().unsqueeze(1)
        return self.start.to(self.dtype).expand(x.shape[0], *self.start.shape)


class _Binding(nn.Module):
    """`at` as a call, which is what `functional_call` can make."""

    def __init__(self, energy_net: nn.Module) -> None:
        super().__init__()
        self.energy_net: Any = energy_net

    def forward(self, x: Tensor | TokenBatch) -> Score:
        score: Score = self.energy_net.at(x)
        return score


def _in(dtype: torch.dtype, net: nn.Module, x: Tensor | TokenBatch) -> Any:  # noqa: ANN401 - whatever the network returns
    """Call a network with copies of its weights, as constants; its own stay as they are."""
    weights = {name: value.detach().to(dtype) for name, value in net.state_dict().items()}
    return functional_call(net, weights, (x,))
