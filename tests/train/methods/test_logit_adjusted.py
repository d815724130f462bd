"""What is particular to methods that only order the labels of a row, above all logit adjustment."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from export.to_onnx import export_predictor
from export.verify import check_parity
from train import methods
from train.feedforward import label_prior
from train.loop import seed_everything

ORDERING = [
    ("softmax", {}),
    ("warp", {}),
    ("equalised", {}),
    ("adaptive-margin", {}),
    ("logit-adjusted", {}),
    ("logit-adjusted", {"post_hoc": True}),
    ("twoway", {"level": "sample"}),
]


def trained(name, problem, **options):
    seed_everything(3)
    module = methods.load(name)
    method = module.build(module.Config(hidden=(16,), dropout=0.0, **options), problem)
    rows = torch.arange(len(problem.train))
    x = problem.train.x.take(rows)
    for _ in range(20):
        method.step(x, problem.train.y.take(rows))
    return method.predictor, x


def test_the_prior_is_the_share_of_pairs(dense_problem):
    targets = sparse.csr_array(np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0]]))
    part = replace(dense_problem.train, targets=targets)
    prior = label_prior(replace(dense_problem, train=part))
    torch.testing.assert_close(prior, torch.tensor([3, 1, 1, 1]) / 6)  # the last as if it had a row


@pytest.mark.parametrize(("name", "options"), ORDERING)
def test_predictions_are_those_of_a_softmax(name, options, dense_problem):
    predictor, x = trained(name, dense_problem, **options)
    logits = predictor.train()(x)
    if options.get("post_hoc"):
        logits = logits - label_prior(dense_problem).log()
    mean_labels = dense_problem.train.targets.nnz / len(dense_problem.train)
    expected = logits.softmax(1).log() + math.log(2 * mean_labels)
    torch.testing.assert_close(predictor.eval()(x), expected)
    assert (predictor(x).argsort(1) == logits.argsort(1)).all()


@pytest.mark.parametrize(("name", "options"), ORDERING)
def test_logits_are_inner_products_of_the_embeddings(name, options, dense_problem):
    predictor, x = trained(name, dense_problem, **options)
    predictor.eval()
    torch.testing.assert_close(
        predictor.embed(x) @ predictor.label_embeddings().T, predictor(x), rtol=1e-4, atol=1e-5
    )


def test_post_hoc_takes_the_prior_away_when_predicting_only(dense_problem):
    plain, x = trained("logit-adjusted", dense_problem, tau=0.0)
    adjusted, _ = trained("logit-adjusted", dense_problem, post_hoc=True, tau=0.7)
    torch.testing.assert_close(adjusted.labels, plain.labels)  # the same training
    torch.testing.assert_close(adjusted.adjustment, -0.7 * label_prior(dense_problem).log())
    difference = adjusted.eval()(x) - plain.eval()(x) - adjusted.adjustment
    # Up to a number a row, which the softmax takes.
    torch.testing.assert_close(difference, difference[:, :1].expand_as(difference))


def test_the_adjustment_is_exported(dense_problem):
    predictor, x = trained("logit-adjusted", dense_problem, post_hoc=True)
    shape = dense_problem.shape
    model = export_predictor(predictor.eval(), shape.n_features, shape.n_labels)
    parity = check_parity(predictor, model, x.numpy())
    assert parity.largest_difference <= 1e-5
    np.testing.assert_allclose(parity.scores, predictor(x).sigmoid().detach(), atol=1e-5)
