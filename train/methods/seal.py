"""SEAL: an energy network learns to score label sets and teaches a plain task-net.

Lee, Patel, Goyal, Zhao, Xu, McCallum: "Structured Energy Network As a Loss", NeurIPS 2022.
Here: SEAL-dynamic with the NCE ranking loss. For each batch, n_F times: the loss-net takes n_E
steps towards ranking the true label set above K sets drawn from the task-net; then the task-net
takes one step towards cross-entropy plus the energy of its own probabilities.

    symbol       here
    F, phi       task-net (`predictor`), lr
    E, theta     loss-net (`loss_net`), loss_lr
    lambda_1     energy_weight
    n_E, n_F     loss_steps, task_steps
    K            samples
    g            global_units

Differences from the paper: none intended. Reductions, clipping, dropout in both networks and the
bias of the global term follow the authors' program where paper and program differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from train.config import TrainingConfig, require_fraction, require_positive
from train.losses import (
    bernoulli_samples,
    binary_cross_entropy,
    log_noise_probability,
    nce_ranking,
    task_objective,
)
from train.methods import Method
from train.nets.energy import EnergyNet
from train.nets.mlp import TaskNet
from train.optimizer import TaskOptimizer
from train.problem import Problem, Shape


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Hyper-parameters of SEAL-dynamic with NCE ranking."""

    lr: float = 1e-3
    """Step size of the task-net."""
    loss_lr: float = 1e-3
    """Step size of the loss-net."""
    weight_decay: float = 1e-5
    """Weight decay of both networks."""
    hidden: tuple[int, ...] = (400, 400)
    """Width of each hidden layer, in both networks."""
    dropout: float = 0.2
    """Share of hidden units dropped after each layer but the last, in both networks."""
    global_units: int = 200
    """Hidden units of the loss-net that see the whole label set."""
    energy_weight: float = 1.0
    """Weight of the energy beside the cross-entropy in the task-net's objective."""
    loss_steps: int = 3
    """Steps of the loss-net before each step of the task-net."""
    task_steps: int = 1
    """Steps of the task-net on each batch."""
    samples: int = 20
    """Label sets drawn from the task-net for each row."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            self, "lr", "loss_lr", "global_units", "loss_steps", "task_steps", "samples"
        )
        require_fraction(self, "dropout")


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained task-net; the loss-net is never exported."""
    return TaskNet(shape.n_features, shape.n_labels, config.hidden, config.dropout)


class Seal(Method):
    """A task-net, a loss-net, and an optimiser for each."""

    def __init__(self, config: Config, problem: Problem) -> None:
        self.config = config
        shape = problem.shape
        self.predictor = predictor(config, shape).to(problem.device)
        self.loss_net = EnergyNet(
            shape.n_features, shape.n_labels, config.hidden, config.dropout, config.global_units
        ).to(problem.device)
        self.optimizer = TaskOptimizer(
            self.predictor.parameters(), lr=config.lr, weight_decay=config.weight_decay
        )
        self.loss_optimizer = torch.optim.AdamW(
            self.loss_net.parameters(),
            lr=config.loss_lr,
            weight_decay=config.weight_decay,
            fused=True,
        )

    def step(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """All inner steps of both networks on one batch."""
        for _ in range(self.config.task_steps):
            for _ in range(self.config.loss_steps):
                nce = self._loss_net_step(x, y)
            cross_entropy, objective = self._task_net_step(x, y)
        return {"objective": objective, "cross_entropy": cross_entropy, "nce": nce / len(x)}

    def _loss_net_step(self, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            logits = self.predictor(x)
            samples = bernoulli_samples(logits.sigmoid(), self.config.samples)
            candidates = torch.cat([y.unsqueeze(1), samples], 1)  # (batch, 1 + K, labels)
            log_noise = log_noise_probability(logits, candidates)
        loss = nce_ranking(self.loss_net(x, candidates), log_noise)
        self.loss_optimizer.zero_grad()
        loss.backward()
        self.loss_optimizer.step()
        return loss.detach()

    def _task_net_step(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.predictor(x)
        cross_entropy = binary_cross_entropy(logits, y)
        scores = self.loss_net(x, logits.sigmoid())
        loss = task_objective(scores, cross_entropy, energy_weight=self.config.energy_weight)
        self.optimizer.step(loss)
        return cross_entropy.detach(), loss.detach()

    def end_epoch(self, validation_score: float) -> None:
        """Halve the task-net's rate on a plateau."""
        self.optimizer.end_epoch(validation_score)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    return Seal(config, problem)
