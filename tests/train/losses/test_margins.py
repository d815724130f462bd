"""Pairwise margins against their formula, pair by pair."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from train.losses import adaptive_margin, equalised, logit_adjusted

PRIOR = torch.tensor([0.5, 0.25, 0.15, 0.08, 0.02], dtype=torch.float64)
LOSSES = {
    "logit_adjusted": (logit_adjusted, {}, lambda y, other: other / y),
    "tau": (logit_adjusted, {"tau": 0.5}, lambda y, other: math.sqrt(other / y)),
    "plain": (logit_adjusted, {"tau": 0.0}, lambda y, other: 1.0),
    "equalised": (equalised, {}, lambda y, other: other),
    "equalised-root": (equalised, {"power": 0.5}, lambda y, other: math.sqrt(other)),
    "adaptive": (adaptive_margin, {}, lambda y, other: y**-0.25 / MEAN_ROOT),
}
MEAN_ROOT = sum(p * p**-0.25 for p in PRIOR.tolist())
each_loss = pytest.mark.parametrize("name", LOSSES)


def slow_margin(logits, targets, rho):
    """Mean over pairs (row, y) of log(1 + sum over y' != y of rho_yy' exp(f_y' - f_y))."""
    losses, prior = [], PRIOR.tolist()
    for f, truth in zip(logits.tolist(), targets.tolist(), strict=True):
        for y in range(len(f)):
            if truth[y]:
                others = [j for j in range(len(f)) if j != y]
                total = sum(rho(prior[y], prior[j]) * math.exp(f[j] - f[y]) for j in others)
                losses.append(math.log(1 + total))
    return sum(losses) / len(losses) if losses else 0.0


def drawn(rows=6, share=0.4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, 5, generator=generator, dtype=torch.float64)
    return logits, (torch.rand(rows, 5, generator=generator) < share).double()


@each_loss
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_equals_the_formula(name, share):
    loss, options, rho = LOSSES[name]
    logits, targets = drawn(share=share)
    expected = slow_margin(logits, targets, rho)
    assert loss(logits, targets, PRIOR, **options).item() == pytest.approx(expected, rel=1e-12)


@each_loss
def test_gradient_is_that_of_finite_differences(name):
    loss, options, _ = LOSSES[name]
    logits, targets = drawn(4)
    targets[0], targets[1] = 0, 1
    assert torch.autograd.gradcheck(
        lambda f: loss(f, targets, PRIOR, **options), (logits.requires_grad_(),)
    )


@each_loss
def test_no_pairs_give_zero_with_a_gradient_of_zero(name):
    loss, options, _ = LOSSES[name]
    logits, targets = drawn(share=0.0)
    value = loss(logits.requires_grad_(), targets, PRIOR, **options)
    value.backward()
    assert value.item() == 0
    assert not logits.grad.any()


@each_loss
@pytest.mark.parametrize("size", [200.0, 1e4])
def test_extreme_logits_and_priors_stay_finite_in_float32(name, size):
    loss, options, _ = LOSSES[name]
    prior = torch.tensor([1 - 1e-6, 1e-6, 1e-12])
    logits = torch.tensor([[size, -size, 0.0], [-size, 0.0, size]], requires_grad=True)
    targets = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    value = loss(logits, targets, prior, **options)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(logits.grad).all()


def test_plain_is_softmax_cross_entropy_of_the_pairs():
    logits, _ = drawn()
    answers = torch.tensor([0, 3, 1, 4, 4, 2])
    targets = functional.one_hot(answers, 5).double()
    value = logit_adjusted(logits, targets, PRIOR, tau=0.0)
    torch.testing.assert_close(value, functional.cross_entropy(logits, answers))
    even = torch.full((5,), 0.2, dtype=torch.float64)
    torch.testing.assert_close(adaptive_margin(logits, targets, even), value)


def test_the_best_scores_of_the_logit_adjusted_loss_are_those_of_even_priors():
    """Rows all alike whose labels follow the prior: the plain loss learns it, this one does not."""
    targets = torch.eye(5, dtype=torch.float64).repeat_interleave((100 * PRIOR).long(), 0)
    learned = {}
    for tau in (0.0, 1.0):
        scores = torch.zeros(5, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([scores], max_iter=200, line_search_fn="strong_wolfe")

        def objective(tau=tau, scores=scores, optimizer=optimizer):
            optimizer.zero_grad()
            value = logit_adjusted(scores.expand(len(targets), 5), targets, PRIOR, tau=tau)
            value.backward()
            return value

        optimizer.step(objective)
        learned[tau] = scores.detach().softmax(0)
    torch.testing.assert_close(learned[0.0], PRIOR, atol=1e-5, rtol=0)
    torch.testing.assert_close(learned[1.0], torch.full_like(PRIOR, 0.2), atol=1e-5, rtol=0)
