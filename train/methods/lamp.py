"""LaMP: labels that attend to the row and then to each other, layer by layer.

Lanchantin, Sekhon, Qi: "Neural Message Passing for Multi-Label Classification", ECML-PKDD 2019.
Each label has a state of its own, at first its embedding. A layer passes messages from the row to
every label, then among the labels along the edges that `mask` leaves; a label's logit is the
product of its last state and its embedding.

    symbol          here
    u_1 ... u_L     `predictor.labels`, the embeddings, also the output weights
    z               `predictor.input`, the row's one node
    A               mask: none (every edge), prior (labels seen together), identity (no edge)
    T               layers

Differences from the paper: see the page of the method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional

from train.batches import Inputs
from train.config import TrainingConfig, require_fraction, require_positive
from train.errors import ConfigError
from train.losses import binary_cross_entropy
from train.method import Method
from train.optimizer import TaskOptimizer
from train.problem import Problem, Shape

BETAS = (0.9, 0.98)
STATES_AT_ONCE = 1 << 15
"""Label states that are predicted together; a row has as many as there are labels."""


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Hyper-parameters of LaMP."""

    epochs: int = 50
    """Passes over the training rows, at most."""
    lr: float = 2e-4
    """Step size of Adam."""
    weight_decay: float = 0.0
    """Weight decay of Adam, decoupled."""
    width: int = 512
    """Size of a label's embedding and states."""
    inner_width: int = 512
    """Hidden units of the feed-forward parts."""
    heads: int = 4
    """Attention heads; they share the width."""
    layers: int = 2
    """Rounds of messages."""
    mask: Literal["none", "prior", "identity"] = "none"
    """Which labels hear each other: all, those seen together in a training row, or none."""
    dropout: float = 0.2
    """Share of each message dropped before it is added to a state."""
    intermediate_weight: float = 0.2
    """Weight of the cross-entropy of each state but the last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "lr", "width", "inner_width", "heads", "layers")
        require_fraction(self, "dropout")
        if self.width % self.heads:
            raise ConfigError(f"--width {self.width} must be a multiple of --heads {self.heads}")
        if self.intermediate_weight < 0:
            raise ConfigError(
                f"--intermediate-weight must not be negative, got {self.intermediate_weight}"
            )


class LoneAttention(nn.Module):
    """Attention of each label to a single node, the row's or itself.

    Its weight is 1 whatever queries and keys are, so that there are none.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, nodes: Tensor, mask: None = None) -> Tensor:
        """Map nodes to their messages, both (batch, nodes, width)."""
        message: Tensor = self.output(self.value(nodes))
        return message


class LabelAttention(nn.Module):
    """Messages among the labels of a row: multi-head attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.projections = nn.Linear(width, 3 * width, bias=False)  # query, key, value
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """Map states to messages, both (batch, labels, width); mask (labels, labels): who hears."""
        batch, labels, width = states.shape
        parts = self.projections(states).view(batch, labels, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)  # (batch, heads, labels, part)
        heard = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        message: Tensor = self.output(heard.transpose(1, 2).flatten(2))
        return message


class Layer(nn.Module):
    """Messages from the row, then among labels; after each kind a feed-forward part."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.from_row = LoneAttention(width)
        is_isolated = config.mask == "identity"
        self.from_labels = (
            LoneAttention(width) if is_isolated else LabelAttention(width, config.heads)
        )
        self.after_row, self.after_labels = (
            nn.Sequential(
                nn.Linear(width, config.inner_width),
                nn.ReLU(),
                nn.Linear(config.inner_width, width),
            )
            for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, states: Tensor, node: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the states (batch, labels, width) after hearing the row, and the other labels."""
        states = self._add(0, states, self.from_row(node))
        states = informed = self._add(1, states, self.after_row(states))
        states = self._add(2, states, self.from_labels(states, mask))
        return informed, self._add(3, states, self.after_labels(states))

    def _add(self, place: int, states: Tensor, message: Tensor) -> Tensor:
        added: Tensor = self.norms[place](states + self.dropout(message))
        return added


class Predictor(nn.Module):
    """The row's node, the label embeddings and the layers."""

    mask: Tensor | None

    def __init__(self, n_features: int, n_labels: int, config: Config) -> None:
        super().__init__()
        self.input = nn.Linear(n_features, config.width)
        self.labels = nn.Parameter(torch.empty(n_labels, config.width))
        nn.init.xavier_normal_(self.labels)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        if config.mask == "prior":
            self.register_buffer("mask", torch.eye(n_labels, dtype=torch.bool))
        else:
            self.mask = None

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (batch, features) to logits (batch, labels)."""
        # The exporter must see one graph for any number of rows, and a server has small batches.
        if self.training or torch.compiler.is_compiling():
            return self.logits(x)[-1]
        rows = max(1, STATES_AT_ONCE // len(self.labels))
        return torch.cat([self.logits(part)[-1] for part in x.split(rows)])

    def logits(self, x: Tensor) -> list[Tensor]:
        """Logits (batch, labels) from every state of the labels, the last one's last.

        Earlier ones leave the embeddings as output weights alone (they get no gradient as such).
        """
        node = self.input(x).unsqueeze(1)  # (batch, 1, width)
        states = self.labels.unsqueeze(0)
        found: list[Tensor] = []
        for layer in self.layers:
            informed, states = layer(states, node, self.mask)
            found += [informed, states]
        earlier = [_products(state, self.labels.detach()) for state in found[:-1]]
        return [*earlier, _products(states, self.labels)]

    def label_embeddings(self) -> Tensor:
        """One vector a label, (labels, width)."""
        return self.labels


def _products(states: Tensor, labels: Tensor) -> Tensor:
    return torch.einsum("blw,lw->bl", states, labels)


def predictor(config: Config, shape: Shape) -> Predictor:
    """Build the untrained network."""
    return Predictor(shape.n_features, shape.n_labels, config)


def seen_together(targets: sparse.csr_array) -> np.ndarray:
    """Which labels share a row of targets (rows, labels), or are the same: (labels, labels)."""
    counts = targets.astype(np.int64)
    together: np.ndarray = (counts.T @ counts).toarray() > 0
    np.fill_diagonal(together, True)
    return together


class Lamp(Method):
    """The network and its optimiser."""

    def __init__(self, config: Config, problem: Problem) -> None:
        self.weight = config.intermediate_weight
        network = predictor(config, problem.shape)
        if network.mask is not None:
            network.mask.copy_(torch.from_numpy(seen_together(problem.train.targets)))
        self.predictor: Predictor = network.to(problem.device)
        self.optimizer = TaskOptimizer(
            self.predictor.parameters(),
            lr=config.lr,
            weight_decay=config.weight_decay,
            betas=BETAS,
        )

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """One step on the cross-entropy of the last states and, weighted, of the earlier ones."""
        answers = self.predictor.logits(x.to_dense())
        *earlier, last = (binary_cross_entropy(logits, y) for logits in answers)
        intermediate = torch.stack(earlier).sum()
        objective = last + self.weight * intermediate
        self.optimizer.step(objective)
        return {
            "objective": objective.detach(),
            "cross_entropy": last.detach(),
            "intermediate": intermediate.detach(),
        }

    def end_epoch(self, validation_score: float) -> None:
        """Halve the rate on a plateau."""
        self.optimizer.end_epoch(validation_score)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    return Lamp(config, problem)
