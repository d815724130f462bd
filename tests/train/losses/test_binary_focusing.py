"""Focal and asymmetric loss against their formulas."""

from __future__ import annotations

import math

import pytest
import torch

from train.losses import asymmetric, binary_cross_entropy, focal


def slow_asymmetric(logits, targets, positive_gamma, negative_gamma, shift):
    """-y (1-p)^g+ log p - (1-y) q^g- log(1-q), q = max(p - shift, 0); labels add up."""
    total = 0.0
    for row, truth in zip(logits.tolist(), targets.tolist(), strict=True):
        for logit, y in zip(row, truth, strict=True):
            p = 1 / (1 + math.exp(-logit))
            q = max(p - shift, 0.0)
            total -= y * (1 - p) ** positive_gamma * math.log(p)
            total -= (1 - y) * q**negative_gamma * math.log(1 - q)
    return total / len(logits)


def drawn(rows=6, labels=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, labels, generator=generator, dtype=torch.float64)
    return logits, (torch.rand(rows, labels, generator=generator) < 0.4).double()


SETTINGS = [(1.0, 4.0, 0.05), (0.0, 3.0, 0.3), (2.0, 2.0, 0.0), (0.0, 0.0, 0.0), (0.5, 0.5, 0.2)]


@pytest.mark.parametrize(("positive_gamma", "negative_gamma", "shift"), SETTINGS)
def test_equals_the_formula(positive_gamma, negative_gamma, shift):
    logits, targets = drawn()
    value = asymmetric(
        logits, targets, positive_gamma=positive_gamma, negative_gamma=negative_gamma, shift=shift
    )
    expected = slow_asymmetric(logits, targets, positive_gamma, negative_gamma, shift)
    assert value.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("positive_gamma", "negative_gamma", "shift"), SETTINGS)
def test_gradient_is_that_of_finite_differences(positive_gamma, negative_gamma, shift):
    logits, targets = drawn(3, 4)
    options = {
        "positive_gamma": positive_gamma,
        "negative_gamma": negative_gamma,
        "shift": shift,
    }
    assert torch.autograd.gradcheck(
        lambda z: asymmetric(z, targets, **options), (logits.requires_grad_(),)
    )


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_focal_equals_the_formula(gamma):
    logits, targets = drawn(seed=1)
    expected = slow_asymmetric(logits, targets, gamma, gamma, 0.0)
    assert focal(logits, targets, gamma=gamma).item() == pytest.approx(expected, rel=1e-12)


def test_without_focus_and_shift_it_is_the_cross_entropy():
    logits, targets = drawn(seed=2)
    torch.testing.assert_close(
        focal(logits, targets, gamma=0.0), binary_cross_entropy(logits, targets)
    )


def test_a_detached_weight_scales_the_gradient_of_the_cross_entropy():
    """d/dz of -y log p - (1-y) log(1-p) is p - y; the weights multiply it."""
    logits, targets = drawn(4, 3)
    logits.requires_grad_()
    asymmetric(
        logits, targets, positive_gamma=1.5, negative_gamma=3.0, shift=0.0, detach_weight=True
    ).backward()
    p = logits.detach().sigmoid()
    weight = torch.where(targets == 1, (1 - p) ** 1.5, p**3)
    torch.testing.assert_close(logits.grad, weight * (p - targets) / len(p))


def test_a_false_label_below_the_shift_costs_nothing():
    logits = torch.tensor([[-4.0, -3.0]], requires_grad=True)  # p = 0.018, 0.047
    loss = asymmetric(logits, torch.zeros(1, 2), shift=0.05, negative_gamma=0.5)
    loss.backward()
    assert loss.item() == 0
    assert logits.grad.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("shift", [0.0, 0.05])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 4.0])
def test_extreme_logits_stay_finite_in_float32(shift, gamma):
    logits = torch.tensor([[200.0, -200.0, 200.0, -200.0]], requires_grad=True)
    targets = torch.tensor([[1.0, 0.0, 0.0, 1.0]])
    loss = asymmetric(logits, targets, positive_gamma=gamma, negative_gamma=gamma, shift=shift)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 3] == -1  # a missed label keeps its full slope
