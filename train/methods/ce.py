"""A feed-forward network trained by cross-entropy: the baseline, the shortest example.

Each label is learned by itself. The network, initialisation and optimiser are those of SEAL's
task-net (Lee et al., NeurIPS 2022), so that the two differ in the loss alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from train.batches import Inputs
from train.config import TrainingConfig, require_fraction, require_positive
from train.losses import binary_cross_entropy
from train.method import Method
from train.nets.mlp import TaskNet
from train.optimizer import TaskOptimizer
from train.problem import Problem, Shape


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Hyper-parameters of the cross-entropy baseline."""

    lr: float = 2e-3
    """Step size of AdamW."""
    weight_decay: float = 1e-5
    """Weight decay of AdamW."""
    hidden: tuple[int, ...] = (400, 400)
    """Width of each hidden layer."""
    dropout: float = 0.2
    """Share of hidden units dropped after each layer but the last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "lr")
        require_fraction(self, "dropout")


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained network."""
    return TaskNet(shape.n_features, shape.n_labels, config.hidden, config.dropout)


class CrossEntropy(Method):
    """A task-net and its optimiser."""

    def __init__(self, config: Config, problem: Problem) -> None:
        self.predictor = predictor(config, problem.shape).to(problem.device)
        self.optimizer = TaskOptimizer(
            self.predictor.parameters(), lr=config.lr, weight_decay=config.weight_decay
        )

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """One step on the mean cross-entropy of the batch."""
        loss = binary_cross_entropy(self.predictor(x), y)
        self.optimizer.step(loss)
        return {"cross_entropy": loss.detach()}

    def end_epoch(self, validation_score: float) -> None:
        """Halve the rate on a plateau."""
        self.optimizer.end_epoch(validation_score)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    return CrossEntropy(config, problem)
