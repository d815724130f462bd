"""Softmax, WARP and RML: their formulas, and WARP's weights against the literal procedure."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from train.losses import multi_label_softmax, rml, warp
from train.losses import ordering as module


def drawn(rows=6, labels=7, share=0.4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(rows, labels, generator=generator, dtype=torch.float64)
    return logits, (torch.rand(rows, labels, generator=generator) < share).double()


def split(logits, truth):
    true = [x for x, y in zip(logits, truth, strict=True) if y]
    return true, [x for x, y in zip(logits, truth, strict=True) if not y]


def rows_of(logits, targets):
    return zip(logits.tolist(), targets.tolist(), strict=True)


def ramp(m):
    return max(0.0, 1 - m) - 0.9 * max(0.0, -0.8 - m)


def drawn_weight(x_p, negatives, n_labels, rng):
    """The literal procedure: shuffle, look until one violates, take the harmonic sum."""
    shuffled = rng.permutation(negatives)
    looks = next((i for i, x in enumerate(shuffled, 1) if 1 - x_p + x > 0), len(negatives) + 1)
    rank = math.floor((n_labels - 1) / looks + 0.5)
    return sum(1 / k for k in range(1, rank + 1))


def expected_weight(x_p, negatives, n_labels):
    """The mean of the same, from P(looks > k) = C(n - v, k) / C(n, k)."""
    n, v = len(negatives), sum(1 - x_p + x > 0 for x in negatives)
    beyond = [math.comb(n - v, k) / math.comb(n, k) for k in range(n + 1)]
    beyond.append(0.0)  # at the latest it ends at n + 1
    mean = 0.0
    for looks in range(1, n + 2):
        rank = math.floor((n_labels - 1) / looks + 0.5)
        mean += (beyond[looks - 1] - beyond[looks]) * sum(1 / k for k in range(1, rank + 1))
    return mean


def slow_warp(logits, targets, weight):
    total = 0.0
    for x, y in rows_of(logits, targets):
        true, false = split(x, y)
        for p in true:
            total += weight(p, false, len(x)) * sum(max(0.0, 1 - p + n) for n in false)
    return total / len(logits) / 20


def slow_rml(logits, targets, weight, label_weight=5.0):
    total = 0.0
    for x, y in rows_of(logits, targets):
        true, false = split(x, y)
        total += label_weight * (sum(ramp(p) for p in true) + sum(ramp(-n) for n in false))
        for p in true:
            total += weight(p, false, len(x)) * sum(ramp(p - n) for n in false)
    return total / len(logits) / 20


def mean_over_draws(loss, logits, targets, draws):
    """Mean and standard error of the loss over many rows that are all the same batch."""
    generator = torch.Generator().manual_seed(5)
    values = torch.stack([loss(logits, targets, generator=generator) for _ in range(draws)])
    return values.mean().item(), (values.std() / math.sqrt(draws)).item()


@pytest.mark.parametrize(("loss", "slow"), [(warp, slow_warp), (rml, slow_rml)])
@pytest.mark.parametrize("share", [0.2, 0.6])
def test_expectation_is_that_of_the_literal_procedure(loss, slow, share):
    logits, targets = drawn(share=share)
    exact = slow(logits, targets, expected_weight)
    mean, error = mean_over_draws(loss, logits, targets, 2000)
    assert abs(mean - exact) < 5 * error
    assert error < 0.02 * exact
    rng = np.random.default_rng(3)
    literal = [slow(logits, targets, lambda *a: drawn_weight(*a, rng)) for _ in range(1000)]
    assert sum(literal) / 1000 == pytest.approx(exact, rel=0.05)


def test_each_weight_has_the_distribution_of_the_literal_procedure():
    """Not only the mean: the shares of every weight, for each true label of a row."""
    logits, _ = drawn(1, 9, seed=4)
    targets = torch.tensor([[1.0, 0, 0, 1, 0, 0, 1, 0, 0]]).double()
    true, false = split(logits[0].tolist(), targets[0].tolist())
    many = module._Pairs.of(logits.expand(10_000, -1), targets.expand(10_000, -1))
    weights = module._warp_weights(many, torch.Generator().manual_seed(0))
    rng = np.random.default_rng(0)
    for p, label in zip(true, targets[0].nonzero().flatten().tolist(), strict=True):
        literal = [round(drawn_weight(p, false, 9, rng), 9) for _ in range(10_000)]
        ours = [round(value, 9) for value in weights[:, label].tolist()]
        for value in {*literal, *ours}:
            assert ours.count(value) / 10_000 == pytest.approx(
                literal.count(value) / 10_000, abs=0.02
            )


@pytest.mark.parametrize(("loss", "slow"), [(warp, slow_warp), (rml, slow_rml)])
def test_equals_the_formula_where_nothing_is_left_to_chance(loss, slow):
    """Every false label violates, or none does: the number of looks is 1, or one more than all."""
    logits, targets = drawn(seed=2)
    for far in (-30.0, 30.0):
        moved = logits + far * targets
        rng = np.random.default_rng(0)
        expected = slow(moved, targets, lambda *a, rng=rng: drawn_weight(*a, rng))
        assert loss(moved, targets).item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("loss", [warp, rml])
def test_gradient_is_that_of_finite_differences(loss):
    logits, targets = drawn(4, 5, seed=3)
    targets[0], targets[1] = 0, 1

    def fixed_order(x):
        return loss(x, targets, generator=torch.Generator().manual_seed(0))

    assert torch.autograd.gradcheck(fixed_order, (logits.requires_grad_(),))


@pytest.mark.parametrize("loss", [warp, rml, multi_label_softmax])
@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("labels", [1, 4])
def test_rows_without_or_with_all_labels_stay_finite(loss, share, labels):
    logits, targets = drawn(3, labels, share)
    value = loss(logits.requires_grad_(), targets)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(logits.grad).all()


def test_warp_of_rows_without_pairs_is_zero():
    for share in (0.0, 1.0):
        logits, targets = drawn(share=share)
        value = warp(logits.requires_grad_(), targets)
        value.backward()
        assert value.item() == 0
        assert not logits.grad.any()


def test_the_global_generator_draws_the_order():
    logits, targets = drawn(20, 30)
    values = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        values.append(warp(logits, targets).item())
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_softmax_equals_the_formula(share):
    logits, targets = drawn(share=share)
    losses = []
    for x, y in rows_of(logits, targets):
        total = sum(map(math.exp, x))
        true, _ = split(x, y)
        if true:
            losses.append(-sum(math.log(math.exp(p) / total) for p in true) / len(true))
    expected = sum(losses) / len(losses) if losses else 0.0
    assert multi_label_softmax(logits, targets).item() == pytest.approx(expected, rel=1e-12)


def test_gradient_of_softmax_is_that_of_finite_differences():
    logits, targets = drawn(4, 5)
    assert torch.autograd.gradcheck(
        lambda x: multi_label_softmax(x, targets), (logits.requires_grad_(),)
    )
