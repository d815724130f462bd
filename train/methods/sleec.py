"""SLEEC: neighbours in small spaces that keep apart what has other labels, one space a cluster.

Bhatia, Jain, Kar, Varma and Jain: "Sparse Local Embeddings for Extreme Multi-label
Classification", NeurIPS 2015. A learner cuts the training rows into clusters by k-means; for each

    Omega        pairs (i, j) with j among the label neighbours of i: largest inner product of y
    Z            (rows, embedding): least  |P(Y Y') - P(Z Z')|^2,  P: only pairs of Omega,
                 by singular value projection: a gradient step on Z Z', then the nearest matrix
                 of that rank without negative eigenvalues
    V            ridge regression from x to Z
    prediction   the cluster of the nearest centre; the mean label set of the k training rows of
                 that cluster whose x V is nearest to that of the new row

and the scores are means over learners, whose clusterings differ.

Differences from the paper: ridge regression alone, without the L1 term on V and on x V; the
eigenvectors of each projection are refined from those of the step before, not computed anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from train.config import MethodConfig, require_positive
from train.nets.neighbours import nearest, squared_distances
from train.nets.stored import dense_table
from train.problem import Problem, Shape

KMEANS_STEPS = 20
REFINEMENTS = 4
FAR_AWAY = 1e3
"""A coordinate that no row has: rows are brought to length one."""
LEAST_DISTANCE = 1e-6
"""Scores of exactly 0 and 1, whose logits are infinite, are moved by this."""


@dataclass(frozen=True, kw_only=True)
class Config(MethodConfig):
    """Hyper-parameters of SLEEC."""

    learners: int = 5
    """Learners whose scores are averaged."""
    cluster_rows: int = 1000
    """Training rows in a cluster, on average."""
    label_neighbours: int = 100
    """Rows of the same cluster, by label sets, to which each row's inner product is kept."""
    embedding: int = 100
    """Numbers that stand for a row; no more than there are labels."""
    projections: int = 30
    """Steps of singular value projection."""
    ridge: float = 1.0
    """Weight of the squares of V."""
    k: int = 20
    """Neighbours that vote."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            self, "learners", "cluster_rows", "label_neighbours", "embedding", "projections",
            "ridge", "k",
        )  # fmt: skip


class Learner(nn.Module):
    """One clustering with an embedding for each cluster."""

    centres: Tensor
    maps: Tensor
    embedded: Tensor
    clusters: Tensor

    def __init__(self, n_clusters: int, embedding: int, shape: Shape) -> None:
        super().__init__()
        width = shape.n_features + 1
        self.register_buffer("centres", torch.zeros(n_clusters, width))
        self.register_buffer("maps", torch.zeros(width, n_clusters, embedding))
        self.register_buffer("embedded", torch.zeros(shape.n_rows, embedding))
        self.register_buffer("clusters", torch.zeros(shape.n_rows, dtype=torch.int64))

    def forward(self, x: Tensor, labels: Tensor, k: int) -> Tensor:
        """Mean label sets (batch, labels) of the neighbours of prepared float64 rows."""
        cluster = squared_distances(x, self.centres).argmin(1, keepdim=True)  # (batch, 1)
        # All maps at once: one product is less than copying a map for each row.
        everywhere = (x @ self.maps.flatten(1).double()).unflatten(1, self.maps.shape[1:])
        index = cluster[:, :, None].expand(-1, 1, everywhere.shape[2])
        embedded = everywhere.gather(1, index).squeeze(1)  # (batch, embedding)
        distances = squared_distances(embedded, self.embedded)
        distances = torch.where(self.clusters == cluster, distances, torch.inf)
        neighbours = nearest(distances, k)  # (batch, k)
        # A cluster may have fewer than k rows; the rest do not count.
        votes = (self.clusters[neighbours] == cluster).float()
        total = (labels[neighbours] * votes[:, :, None]).sum(1)
        return total / votes.sum(1, keepdim=True)


class Ensemble(nn.Module):
    """Learners, and the label sets of the training rows."""

    labels: Tensor

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.k = min(config.k, shape.n_rows)
        n_clusters = math.ceil(shape.n_rows / config.cluster_rows)
        embedding = min(config.embedding, shape.n_labels)
        self.register_buffer("labels", torch.zeros(shape.n_rows, shape.n_labels, dtype=torch.uint8))
        self.learners = nn.ModuleList(
            Learner(n_clusters, embedding, shape) for _ in range(config.learners)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (batch, features) to logits (batch, labels)."""
        # In float64, from the length of a row on: see `squared_distances`.
        rows = prepared(x.double())
        scores = [learner(rows, self.labels, self.k) for learner in self.learners]
        return torch.logit(torch.stack(scores).mean(0), LEAST_DISTANCE).to(x.dtype)


def prepared(x: Tensor) -> Tensor:
    """Rows of length one, as in the authors' program, and a one for the bias of V."""
    return functional.pad(functional.normalize(x, dim=1), (0, 1), value=1.0)


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the predictor with empty tables."""
    return Ensemble(config, shape)


def fit(config: Config, problem: Problem) -> nn.Module:
    """Fit every learner; what differs between them is where k-means starts."""
    network = Ensemble(config, problem.shape).to(problem.device)
    network.labels = dense_table(problem.train.y, problem.device, torch.uint8)
    x = prepared(dense_table(problem.train.x, problem.device))
    for learner in network.learners:
        _fit_learner(learner, x, network.labels, config)  # type: ignore[arg-type] # a ModuleList
    return network


def _fit_learner(learner: Learner, x: Tensor, labels: Tensor, config: Config) -> None:
    learner.centres, learner.clusters = k_means(x, len(learner.centres))
    for cluster in range(len(learner.centres)):
        rows = (learner.clusters == cluster).nonzero().squeeze(1)
        if len(rows):
            z = label_embedding(labels[rows].float(), learner.embedded.shape[1], config)
            learner.maps[:, cluster] = ridge_regression(x[rows], z, config.ridge)
            # What a new row is compared with is what V makes of the others, not Z.
            learner.embedded[rows] = x[rows] @ learner.maps[:, cluster]


def k_means(x: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
    """Lloyd's iteration from random rows: centres (clusters, width), the cluster of each row.

    A cluster that lost all its rows ends far away, where no row will look for it.
    """
    start = torch.randperm(len(x))[:n_clusters].to(x.device)
    centres = x[start]
    for _ in range(KMEANS_STEPS):
        members = functional.one_hot(_nearest_centre(x, centres), n_clusters).to(x.dtype)
        counts = members.sum(0)[:, None]  # (clusters, 1)
        centres = torch.where(counts > 0, members.T @ x / counts.clamp(min=1), centres)
    clusters = _nearest_centre(x, centres)
    is_used = functional.one_hot(clusters, n_clusters).any(0)
    return torch.where(is_used[:, None], centres, FAR_AWAY), clusters


def _nearest_centre(x: Tensor, centres: Tensor) -> Tensor:
    return torch.cat([squared_distances(part, centres).argmin(1) for part in x.split(1024)])


def label_embedding(y: Tensor, embedding: int, config: Config) -> Tensor:
    """Z of one cluster, (rows, embedding), from its label sets (rows, labels).

    Singular value projection with step size 1, at which no step can make it worse: the gradient
    of |P(M - Y Y')|^2 / 2 at M = Z Z' is P(M - Y Y').
    """
    products = y @ y.T
    kept = _neighbour_pairs(products, config.label_neighbours)
    z = y.new_zeros(len(y), min(embedding, len(y)))
    # Twice as many directions as wanted: those of large negative eigenvalues take some.
    basis = torch.randn(len(y), min(2 * embedding, len(y))).to(y.device)
    for _ in range(config.projections):
        target = z @ z.T
        target -= kept * (target - products)
        for _ in range(REFINEMENTS):
            basis = torch.linalg.qr(target @ basis).Q
        values, vectors = torch.linalg.eigh(basis.T @ target @ basis)
        best = slice(-z.shape[1], None)  # eigenvalues are in ascending order
        z = basis @ (vectors[:, best] * values[best].clamp(min=0).sqrt())
    return functional.pad(z, (0, embedding - z.shape[1]))


def _neighbour_pairs(products: Tensor, count: int) -> Tensor:
    """1 for pairs of which one is among the other's neighbours by inner product, else 0."""
    neighbours = nearest(products.max() - products, min(count, len(products)))
    kept = torch.zeros_like(products).scatter(1, neighbours, 1.0)
    return torch.maximum(kept, kept.T)


def ridge_regression(x: Tensor, z: Tensor, ridge: float) -> Tensor:
    """V (width, embedding) with the least |x V - z|^2 + ridge |V|^2."""
    is_wide = x.shape[1] > x.shape[0]  # then by x' (x x' + ridge)^-1 z, which is the same
    gram = x @ x.T if is_wide else x.T @ x
    gram.diagonal().add_(ridge)
    solved: Tensor = torch.linalg.solve(gram, z if is_wide else x.T @ z)
    return x.T @ solved if is_wide else solved
