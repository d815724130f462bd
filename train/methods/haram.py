"""ML-ARAM: prototypes of rows with equal label sets; the ones that a row resembles most vote.

Benites and Sapozhnikova: "HARAM: A Hierarchical ARAM Neural Network for Large-Scale Text
Classification", ICDM Workshop 2015, whose clustering of prototypes, for speed alone, is left out.
Rows are scaled to [0, 1] and complement-coded, x = [a, 1 - a]; `min` is by element, |.| the sum.

    training, one pass    among the prototypes w of the row's label set with |min(w, x)| / |x| >
                          vigilance, the one with the largest |min(w, x)| / |w| becomes min(w, x);
                          without any the row becomes a prototype. n counts a prototype's rows
    activation            A(w) = |min(w, x)| / |w|
    voters                all w with (A* - A(w)) / A* <= threshold (A* - least A); A* the largest
    score of a label      sum of A n over the voters that have it / sum of A n over all voters

Differences from the authors' program: scores are divided by the sum of A n, not of A, which makes
them shares and keeps every ranking; labels are chosen by a threshold, as for all methods here,
not by cutting at the largest gap; new rows are scaled as the training rows were, not by their own
least and largest value, and what falls outside is clipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from train.config import MethodConfig, require_fraction
from train.nets.stored import StoredTables, check_size, dense_table
from train.problem import Problem, Shape

CHOICE = 1e-13
"""Added to |w|, as in the authors' program, and in place of sums that are zero."""
LEAST_DISTANCE = 1e-6
"""Scores of exactly 0 and 1, whose logits are infinite, are moved by this."""


@dataclass(frozen=True, kw_only=True)
class Config(MethodConfig):
    """Hyper-parameters of ML-ARAM."""

    scaling: Literal["auto", "none", "standard"] = "none"
    """Scaling before the method's own, which maps the training values to [0, 1]."""
    vigilance: float = 0.9
    """How much a row must have in common with a prototype to join it; 1: only equals."""
    threshold: float = 0.02
    """Prototypes whose activation is below the best by this share of the range do not vote."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fraction(self, "vigilance", "threshold")


class Prototypes(StoredTables):
    """Prototypes with their label sets and numbers of rows, and the scaling of the inputs.

    `weights` are uint8 where all prototypes consist of zeros and ones.
    """

    low: Tensor
    span: Tensor
    weights: Tensor
    labels: Tensor
    counts: Tensor

    def __init__(self, shape: Shape, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("span", torch.ones(()))
        self.register_buffer("weights", torch.ones(1, 2 * shape.n_features))  # (prototypes, 2 D)
        self.register_buffer("labels", torch.zeros(1, shape.n_labels, dtype=torch.uint8))
        self.register_buffer("counts", torch.ones(1))  # (prototypes,)

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (batch, features) to logits (batch, labels)."""
        activation = self.activation(x)
        best, least = activation.amax(1, keepdim=True), activation.amin(1, keepdim=True)
        drop = (best - activation) / best.clamp(min=CHOICE)
        is_voter = drop <= self.threshold * (best - least)
        votes = torch.where(is_voter, activation * self.counts, 0.0)
        # A row that shares nothing with any prototype gets no label.
        total = votes.sum(1, keepdim=True).clamp(min=CHOICE)
        scores = votes @ self.labels.to(votes.dtype) / total
        return torch.logit(scores, LEAST_DISTANCE).to(x.dtype)

    def activation(self, x: Tensor) -> Tensor:
        """A(w) of rows (batch, features) and all prototypes: (batch, prototypes) float64.

        In float32 who votes would now and then depend on the rounding of a runtime or batch size.
        """
        coded, weights = complement_coded(self.scaled(x)).double(), self.weights.double()
        shared = _shared_of_binary if self.weights.dtype == torch.uint8 else _shared
        return shared(coded, weights) / (weights.sum(1) + CHOICE)

    def scaled(self, x: Tensor) -> Tensor:
        """Rows (batch, features) with the range of the training values as [0, 1]."""
        return ((x - self.low) / self.span).clamp(0, 1)


def complement_coded(x: Tensor) -> Tensor:
    """[a, 1 - a]: (batch, 2 features)."""
    return torch.cat([x, 1 - x], dim=1)


def _shared_of_binary(x: Tensor, weights: Tensor) -> Tensor:
    """|min(w, x)|, (batch, prototypes): min(1, x) is x and min(0, x) is 0, hence a product."""
    return x @ weights.T


def _shared(x: Tensor, weights: Tensor) -> Tensor:
    """|min(w, x)| = (|w| + |x| - |w - x|) / 2, (batch, prototypes)."""
    if torch.compiler.is_exporting():
        return _shared_by_scan(x, weights)  # ONNX knows no such distance
    return (x.sum(1, keepdim=True) + weights.sum(1) - torch.cdist(x, weights, p=1)) / 2


def _shared_by_scan(x: Tensor, weights: Tensor) -> Tensor:
    """The same feature by feature: never more than (batch, prototypes) in memory."""

    def add_feature(total: Tensor, feature: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
        return total + torch.minimum(*feature), ()

    start = x.new_zeros(x.shape[0], weights.shape[0])
    features = (x.T.contiguous()[:, :, None], weights.T.contiguous()[:, None, :])
    total: Tensor = scan(add_feature, start, features)[0]
    return total


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the predictor with one empty prototype."""
    return Prototypes(shape, config.threshold)


def fit(config: Config, problem: Problem) -> nn.Module:
    """Pass once over the training rows; rows of different label sets never meet."""
    network = Prototypes(problem.shape, config.threshold)
    # One row after the other, with a decision on each: nothing for a GPU.
    values = dense_table(problem.train.x, problem.device).cpu()
    check_size(len(values), 2 * values.shape[1] * values.itemsize)
    low, high = values.aminmax()
    if low < 0 or high > 1:
        network.low, network.span = low, (high - low).clamp(min=torch.finfo(low.dtype).tiny)
    coded = complement_coded(network.scaled(values)).numpy()
    weights, first_rows, counts = zip(
        *(
            prototype
            for rows in _rows_by_label_set(problem.train.targets)
            for prototype in _prototypes(coded, rows, config.vigilance)
        ),
        strict=True,
    )
    table = torch.from_numpy(np.stack(weights))
    is_binary = bool(((table == 0) | (table == 1)).all())
    network.weights = table.to(torch.uint8) if is_binary else table
    network.labels = torch.from_numpy(problem.train.targets[list(first_rows)].toarray()).byte()
    network.counts = torch.tensor(counts, dtype=torch.float32)
    return network.to(problem.device)


def _rows_by_label_set(targets: sparse.csr_array) -> list[list[int]]:
    """The rows of each label set, in their order."""
    groups: dict[bytes, list[int]] = {}
    for row in range(targets.shape[0]):
        labels = np.sort(targets.indices[targets.indptr[row] : targets.indptr[row + 1]])
        groups.setdefault(labels.tobytes(), []).append(row)
    return list(groups.values())


def _prototypes(
    coded: np.ndarray, rows: list[int], vigilance: float
) -> list[tuple[np.ndarray, int, int]]:
    """The prototypes of rows with equal label sets: weights, first row, number of rows."""
    weights = np.empty((len(rows), coded.shape[1]), coded.dtype)
    sizes = np.empty(len(rows))
    first_rows: list[int] = []
    counts: list[int] = []
    for row in rows:
        x, n = coded[row], len(counts)
        common = np.minimum(weights[:n], x).sum(1, dtype=np.float64)
        fits = common > vigilance * x.sum(dtype=np.float64)
        if fits.any():
            winner = int(np.argmax(np.where(fits, common / (sizes[:n] + CHOICE), -1)))
            np.minimum(weights[winner], x, out=weights[winner])
            counts[winner] += 1
        else:
            winner = n
            weights[winner] = x
            first_rows.append(row)
            counts.append(1)
        sizes[winner] = weights[winner].sum(dtype=np.float64)
    return list(zip(weights, first_rows, counts, strict=False))
