"""Binary relevance against scikit-learn's logistic regression."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from train.errors import ConfigError
from train.methods import br


def everything(part):
    rows = torch.arange(len(part))
    return part.x.take(rows), part.y.take(rows)


@pytest.mark.parametrize("penalty", [0.1, 1.0, 30.0])
def test_every_label_has_the_optimum_of_scikit_learn(penalty, problem, monkeypatch):
    monkeypatch.setattr(br, "BATCH", 10)  # several batches, the last one smaller
    layer = br.fit(br.Config(penalties=(penalty,), tolerance=1e-7, max_steps=1000), problem)
    x, y = (values.numpy() for values in everything(problem.train))
    for label in range(y.shape[1]):
        theirs = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=10_000)
        theirs.fit(x.astype(np.float64), y[:, label])
        np.testing.assert_allclose(layer.weight[label], theirs.coef_[0], rtol=2e-3, atol=1e-3)
        np.testing.assert_allclose(layer.bias[label], theirs.intercept_[0], rtol=2e-3, atol=1e-3)


def test_takes_the_penalty_that_is_best_on_validation_rows(dense_problem):
    penalties = (1000.0, 10.0, 1.0, 1e-4)
    x, y = everything(dense_problem.validation)
    losses, weights = [], []
    for penalty in penalties:
        layer = br.fit(br.Config(penalties=(penalty,)), dense_problem)
        losses.append(float(torch.nn.functional.binary_cross_entropy_with_logits(layer(x), y)))
        weights.append(layer.weight)
    best = int(np.argmin(losses))
    assert 0 < best < len(penalties) - 1  # or the choice would prove nothing
    chosen = br.fit(br.Config(penalties=penalties), dense_problem)
    torch.testing.assert_close(chosen.weight, weights[best], rtol=0.01, atol=1e-3)


@pytest.mark.parametrize("penalties", [(), (1.0, 0.0)])
def test_refuses_penalties_that_are_none(penalties):
    with pytest.raises(ConfigError, match="--penalties must be positive"):
        br.Config(penalties=penalties)
