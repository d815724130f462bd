"""Linear evaluation: how well linear layers read the labels from the features of an encoder.

For every label a logistic regression with each rate and weight decay of a grid, from several
initialisations whose probabilities are averaged; the best of the grid is chosen label by label on
validation rows (ABALONE: Audibert et al., ECML PKDD 2024). All of them are columns of one product.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from train import ranks
from train.batches import Inputs, scoring_order
from train.errors import ConfigError
from train.method import Method
from train.nets.heads import AveragedHeads, Classifier, mean_logit
from train.optimizer import linear_decay
from train.problem import Problem

GRID = tuple(product((1.0, 0.1, 0.01), (1.0, 0.1, 0.01, 1e-4, 1e-6)))
"""Rate and weight decay of AdamW."""
INITIALISATIONS = 3
LARGEST_GRID = 2**27
"""Numbers in all linear layers together; training keeps four of each."""
CHOICE_BATCH = 256
"""Rows that the whole grid scores at once."""


class HeadGrid:
    """The linear layers of all points of the grid, in training."""

    def __init__(self, size: int, n_labels: int, n_steps: int, device: torch.device) -> None:
        starts = torch.empty(INITIALISATIONS, n_labels, size, device=device)
        for start in starts:
            nn.init.xavier_uniform_(start)
        weight = starts.permute(2, 0, 1).contiguous()  # (size, initialisations, labels)
        self.weights = [nn.Parameter(weight.clone()) for _ in GRID]
        self.biases = [nn.Parameter(torch.zeros_like(weight[0])) for _ in GRID]
        self.adam = torch.optim.AdamW(
            [
                {"params": [weight, bias], "lr": lr, "peak": lr, "weight_decay": decay}
                for weight, bias, (lr, decay) in zip(self.weights, self.biases, GRID, strict=True)
            ],
            fused=True,
        )
        self.steps, self.n_steps = 0, n_steps

    def step(self, features: Inputs, y: Tensor) -> Tensor:
        """Update every layer on its own loss; return the cross-entropy of the best of the grid.

        features: (batch, size). y: (batch, labels). The cross-entropy is summed over labels.
        """
        for group in self.adam.param_groups:
            group["lr"] = group["peak"] * linear_decay(self.steps / self.n_steps)
        logits = self.logits(features)  # (batch, grid, initialisations, labels)
        losses = functional.binary_cross_entropy_with_logits(
            logits, y[:, None, None].expand_as(logits), reduction="none"
        ).mean(0)
        self.adam.zero_grad()
        ranks.backward(losses.sum(), [*self.weights, *self.biases])
        self.adam.step()
        self.steps += 1
        return ranks.total(ranks.weighted(losses.detach().sum(2).mean(1))).min()

    def logits(self, features: Inputs) -> Tensor:
        """Map features (batch, size) to (batch, grid, initialisations, labels)."""
        weight = torch.stack([*self.weights], 1)  # (size, grid, initialisations, labels)
        bias = torch.stack([*self.biases])
        logits = features @ weight.flatten(1) + bias.flatten()
        return logits.view(-1, *bias.shape)

    @torch.no_grad()
    def choose(self, batches: Iterable[tuple[Inputs, Tensor]]) -> Tensor:
        """The point of the grid with the best F1 of each label on these rows, (labels,) int64.

        F1 is that of the averaged probability from 0.5 on. Of equally good points the one with the
        lowest cross-entropy is taken: a label without validation rows has no F1.

        batches: features (batch, size) and labels (batch, labels).
        """
        hits = predicted = true = losses = torch.zeros((), device=self.weights[0].device)
        for features, y in batches:
            logits = mean_logit(self.logits(features), dim=2)  # (batch, grid, labels)
            target, positive = y[:, None].expand_as(logits), logits >= 0
            hits = hits + (positive * target).sum(0)
            predicted, true = predicted + positive.sum(0), true + target.sum(0)
            losses = losses + functional.binary_cross_entropy_with_logits(
                logits, target, reduction="none"
            ).sum(0)
        f1 = 2 * hits / (predicted + true).clamp(min=1)
        return losses.where(f1 == f1.amax(0), torch.inf).argmin(0)

    @torch.no_grad()
    def fill(self, heads: AveragedHeads, choice: Tensor) -> None:
        """Copy the layers of the chosen points; choice: (labels,)."""
        weight, bias = torch.stack([*self.weights]), torch.stack([*self.biases])
        heads.weight.copy_(weight.gather(0, choice.expand_as(weight[:1]))[0])
        heads.bias.copy_(bias.gather(0, choice.expand_as(bias[:1]))[0])

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {
            "weights": [weight.detach().clone() for weight in self.weights],
            "biases": [bias.detach().clone() for bias in self.biases],
            "adam": self.adam.state_dict(),
            "steps": self.steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        with torch.no_grad():
            for name in ("weights", "biases"):
                for parameter, saved in zip(getattr(self, name), state[name], strict=True):
                    parameter.copy_(saved)
        self.adam.load_state_dict(state["adam"])
        self.steps = state["steps"]


class LinearSettings(Protocol):
    """What a config says about linear evaluation."""

    @property
    def linear_epochs(self) -> int:
        """Passes over the training rows."""
        ...

    @property
    def linear_batch_size(self) -> int:
        """Rows in a batch."""
        ...


class LinearEvaluation(Method):
    """Linear layers on a frozen encoder: the last stage of a method that trains one."""

    def __init__(
        self, config: LinearSettings, problem: Problem, encoder: nn.Module, size: int
    ) -> None:
        n_labels = problem.shape.n_labels
        numbers = size * n_labels * INITIALISATIONS * len(GRID)
        if numbers > LARGEST_GRID:
            raise ConfigError(
                f"linear evaluation of {size} features and {n_labels} labels needs {numbers:,} "
                f"weights, and {LARGEST_GRID:,} is the limit: take an encoder with fewer features"
            )
        self.validation, self.device = problem.validation, problem.device
        self.heads = AveragedHeads(size, n_labels, INITIALISATIONS)
        self.predictor: Classifier = Classifier(encoder, self.heads).to(problem.device)
        batches = math.ceil(len(problem.train) / config.linear_batch_size)
        self.grid = HeadGrid(size, n_labels, config.linear_epochs * batches, problem.device)

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """One step of every linear layer."""
        return {"cross_entropy": self.grid.step(self._features(x), y)}

    def before_validation(self) -> None:
        """Choose the best linear layers so far, label by label, on the validation rows."""
        self.grid.fill(self.heads, self.grid.choose(self._validation_batches()))

    @torch.no_grad()
    def _features(self, x: Inputs) -> Inputs:
        features: Inputs = self.predictor.encoder.eval()(x)
        return features

    def _validation_batches(self) -> Iterator[tuple[Inputs, Tensor]]:
        for batch in scoring_order(self.validation.x):
            for index in batch.split(CHOICE_BATCH):
                rows = index.to(self.device)
                yield self._features(self.validation.x.batch(rows)), self.validation.y.take(rows)
