"""C2AE: label sets and rows meet in one latent space, from which a decoder reads the labels.

Yeh, Wu, Ko, Wang: "Learning Deep Latent Spaces for Multi-Label Classification", AAAI 2017. Three
networks learn together: F_x takes a row to a latent code and F_e its label set, to the same code
(deep canonical correlation); F_d decodes the codes of label sets so that true labels rank above
the others. A row is answered by F_d(F_x(x)), although F_d never saw a code of F_x.

    symbol      here
    F_x         `predictor.features`
    F_e         `label_encoder`
    F_d         `predictor.decoder`
    l           latent size, latent_share * labels
    lambda      orthogonality (0.5)
    alpha       output_weight

Differences from the paper: see the page of the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from train import ranks
from train.batches import Inputs
from train.config import TrainingConfig, require_fraction, require_positive
from train.errors import ConfigError
from train.losses import exponential_ranking
from train.method import Method
from train.optimizer import TaskOptimizer
from train.problem import Problem, Shape

SLOPE = 0.1
"""Of the leaky ReLU below zero."""


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Hyper-parameters of C2AE."""

    batch_size: int = 500
    """Rows in a training batch; the latent loss sums over them."""
    lr: float = 3e-3
    """Step size of AdamW."""
    weight_decay: float = 1e-3
    """Weight decay of AdamW."""
    hidden: tuple[int, ...] = (512, 512)
    """Width of each hidden layer of F_x; F_e and F_d have one layer, as wide as the last."""
    dropout: float = 0.0
    """Share of hidden units of F_x dropped after each layer."""
    latent_share: float = 0.8
    """Size of the latent space as a share of the number of labels."""
    orthogonality: float = 0.5
    """Weight of the demand that the dimensions of the codes be orthonormal."""
    output_weight: float = 0.5
    """Weight of the ranking loss beside the latent loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "lr", "latent_share", "output_weight")
        require_fraction(self, "dropout")
        if self.orthogonality < 0:
            raise ConfigError(f"--orthogonality must not be negative, got {self.orthogonality}")


class LatentNet(nn.Module):
    """F_x and F_e: leaky ReLU layers, then codes sigmoid - 1/2."""

    def __init__(
        self, n_inputs: int, widths: Sequence[int], n_latent: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise([n_inputs, *widths]):
            layers += [nn.Linear(before, after), nn.LeakyReLU(SLOPE), nn.Dropout(dropout)]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], n_latent))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs) to codes (batch, latent) in [-1/2, 1/2]."""
        hidden: Tensor = self.layers(x)
        return hidden.sigmoid() - 0.5


class Predictor(nn.Module):
    """F_d(F_x(x)), as logits."""

    def __init__(self, n_features: int, n_labels: int, n_latent: int, config: Config) -> None:
        super().__init__()
        self.features = LatentNet(n_features, config.hidden, n_latent, config.dropout)
        width = config.hidden[-1]
        self.decoder = nn.Sequential(
            nn.Linear(n_latent, width), nn.LeakyReLU(SLOPE), nn.Linear(width, n_labels)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (batch, features) to logits (batch, labels)."""
        logits: Tensor = self.decoder(self.features(x))
        return logits


def latent_size(config: Config, n_labels: int) -> int:
    """Dimensions of the latent space; at least one."""
    return max(1, round(config.latent_share * n_labels))


def predictor(config: Config, shape: Shape) -> Predictor:
    """Build the untrained network."""
    n_latent = latent_size(config, shape.n_labels)
    return Predictor(shape.n_features, shape.n_labels, n_latent, config)


def latent_loss(rows: Tensor, label_sets: Tensor, *, orthogonality: float) -> Tensor:
    """||X - E||^2 + orthogonality (||X'X - I||^2 + ||E'E - I||^2), Frobenius norms.

    rows, label_sets: X and E, the codes of the same batch, (batch, latent). Nothing is averaged:
    X'X = I fixes the size of a whole batch of codes, so that it depends on the batch's rows.
    """
    distance = (rows - label_sets).square().sum()
    return distance + orthogonality * (_correlation(rows) + _correlation(label_sets))


def _correlation(codes: Tensor) -> Tensor:
    identity = torch.eye(codes.shape[1], dtype=codes.dtype, device=codes.device)
    return (codes.T @ codes - identity).square().sum()


class C2ae(Method):
    """The three networks and their optimiser."""

    def __init__(self, config: Config, problem: Problem) -> None:
        n_labels = problem.shape.n_labels
        self.config = config
        self.predictor: Predictor = predictor(config, problem.shape).to(problem.device)
        self.label_encoder = LatentNet(
            n_labels, config.hidden[-1:], latent_size(config, n_labels)
        ).to(problem.device)
        self.optimizer = TaskOptimizer(
            [*self.predictor.parameters(), *self.label_encoder.parameters()],
            lr=config.lr,
            weight_decay=config.weight_decay,
        )

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """One step of all three networks on the latent and the ranking loss.

        The decoder reads codes of label sets only: ranking teaches F_d and F_e, never F_x.
        """
        codes = self.label_encoder(y)
        latent = latent_loss(
            ranks.whole(self.predictor.features(x.to_dense())),
            ranks.whole(codes),
            orthogonality=self.config.orthogonality,
        )
        scores = self.predictor.decoder(codes).sigmoid()
        output = exponential_ranking(scores, y).mean()
        objective = latent + self.config.output_weight * output
        self.optimizer.step(objective)
        return {
            "objective": objective.detach(),
            "latent": latent.detach(),
            "output": output.detach(),
        }

    def end_epoch(self, validation_score: float) -> None:
        """Halve the rate on a plateau."""
        self.optimizer.end_epoch(validation_score)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    return C2ae(config, problem)
