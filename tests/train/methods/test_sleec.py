"""The parts of SLEEC against what they minimise, and its predictions against loops."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from train.batches import DenseRows
from train.loop import seed_everything
from train.methods import sleec


@pytest.mark.parametrize("shape", [(40, 7), (7, 40)], ids=["tall", "wide"])
def test_ridge_regression_is_that_of_scikit_learn(shape):
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=shape), rng.normal(size=(shape[0], 3))
    ours = sleec.ridge_regression(torch.from_numpy(x), torch.from_numpy(z), 0.7)
    theirs = Ridge(alpha=0.7, fit_intercept=False).fit(x, z)
    np.testing.assert_allclose(ours, theirs.coef_.T, atol=1e-10)


def label_sets(rows=60, labels=12):
    return (torch.rand(rows, labels, generator=torch.Generator().manual_seed(1)) < 0.3).float()


def objective(z, y, count):
    products = y @ y.T
    kept = sleec._neighbour_pairs(products, count)
    return float((kept * (products - z @ z.T)).square().sum())


def by_singular_value_projection(y, embedding, count, steps):
    """With an eigen-decomposition of the whole matrix in every step, in float64."""
    y = y.double()
    products = y @ y.T
    kept = sleec._neighbour_pairs(products, count)
    product = torch.zeros_like(products)
    for _ in range(steps):
        values, vectors = torch.linalg.eigh(product - kept * (product - products))
        values, vectors = values[-embedding:].clamp(min=0), vectors[:, -embedding:]
        product = vectors * values @ vectors.T
    return float((kept * (products - product)).square().sum())


@pytest.mark.parametrize("embedding", [3, 8])
def test_embeddings_are_as_good_as_with_whole_decompositions(embedding):
    seed_everything(0)
    y = label_sets()
    config = sleec.Config(label_neighbours=10, projections=40)
    z = sleec.label_embedding(y, embedding, config)
    expected = by_singular_value_projection(y, embedding, 10, 40)
    assert objective(z, y, 10) < 1.05 * expected
    assert objective(z, y, 10) < 0.5 * objective(torch.zeros_like(z), y, 10)


def test_as_many_numbers_as_labels_keep_every_inner_product():
    seed_everything(0)
    y = label_sets()
    z = sleec.label_embedding(y, 12, sleec.Config(label_neighbours=60, projections=10))
    torch.testing.assert_close(z @ z.T, y @ y.T, atol=1e-3, rtol=1e-3)


def test_label_neighbours_have_the_largest_inner_products():
    y = label_sets(rows=20)
    products = y @ y.T
    kept = sleec._neighbour_pairs(products, 4)
    assert torch.equal(kept, kept.T)
    for row in range(20):
        best = sorted(range(20), key=lambda j: (-products[row, j].item(), j))[:4]
        assert all(kept[row, j] == 1 for j in best)


def test_k_means_ends_where_every_centre_is_the_mean_of_its_rows():
    seed_everything(0)
    x = torch.randn(90, 2) + torch.tensor([[0.0, 0.0], [30.0, 0.0], [0.0, 30.0]]).repeat(30, 1)
    centres, clusters = sleec.k_means(x, 3)
    for cluster in clusters.unique():
        torch.testing.assert_close(centres[cluster], x[clusters == cluster].mean(0))
    distances = (x[:, None] - centres).square().sum(2)
    assert torch.equal(clusters, distances.argmin(1))


def test_clusters_without_rows_are_never_chosen(dense_problem):
    part = dense_problem.train
    same = dataclasses.replace(part, x=DenseRows(torch.ones(32, 12)))
    network = sleec.fit(
        sleec.Config(cluster_rows=8), dataclasses.replace(dense_problem, train=same)
    )
    assert len(network.learners[0].clusters.unique()) == 1
    x = dense_problem.test.x.take(torch.arange(16))
    assert torch.isfinite(network(x)).all()


def mean_of_neighbours(network, x):
    """Scores of one prepared row by loops over learners, clusters and training rows."""
    scores = []
    for learner in network.learners:
        cluster = int(((learner.centres - x) ** 2).sum(1).argmin())
        z = x.double() @ learner.maps[:, cluster].double()
        members = [i for i in range(len(network.labels)) if learner.clusters[i] == cluster]
        members.sort(key=lambda i: float(((learner.embedded[i].double() - z) ** 2).sum()))
        scores.append(network.labels[members[: network.k]].double().mean(0))
    return torch.stack(scores).mean(0)


@pytest.mark.parametrize("cluster_rows", [4, 16, 100], ids=["fewer rows than k", "two", "one"])
def test_scores_are_means_over_neighbours_and_learners(cluster_rows, dense_problem):
    seed_everything(0)
    config = sleec.Config(cluster_rows=cluster_rows, k=6, learners=3)
    network = sleec.fit(config, dense_problem)
    x = dense_problem.test.x.take(torch.arange(16))
    rows = sleec.prepared(x.double())
    expected = torch.stack([mean_of_neighbours(network, row) for row in rows])
    torch.testing.assert_close(network(x).sigmoid().double(), expected, atol=1e-5, rtol=0)


def test_a_row_of_zeros_is_answered(dense_problem):
    network = sleec.fit(sleec.Config(), dense_problem)
    assert torch.isfinite(network(torch.zeros(1, 12))).all()
