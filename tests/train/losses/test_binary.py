from __future__ import annotations

import math

import pytest
import torch

from train.losses import binary_cross_entropy


def slow_cross_entropy(logits, targets):
    """Mean over rows of the sum over labels of -y log p - (1 - y) log(1 - p)."""
    total = 0.0
    for row, truth in zip(logits.tolist(), targets.tolist(), strict=True):
        for logit, y in zip(row, truth, strict=True):
            p = 1 / (1 + math.exp(-logit))
            total -= y * math.log(p) + (1 - y) * math.log(1 - p)
    return total / len(logits)


@pytest.mark.parametrize(("rows", "labels"), [(1, 1), (1, 7), (6, 1), (5, 4)])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_equals_the_formula(rows, labels, share):
    generator = torch.Generator().manual_seed(rows * 10 + labels)
    logits = 3 * torch.randn(rows, labels, generator=generator, dtype=torch.float64)
    targets = (torch.rand(rows, labels, generator=generator) < share).double()
    expected = slow_cross_entropy(logits, targets)
    assert binary_cross_entropy(logits, targets).item() == pytest.approx(expected, rel=1e-12)


def test_takes_soft_targets():
    logits = torch.tensor([[0.3, -1.2]], dtype=torch.float64)
    targets = torch.tensor([[0.25, 0.9]], dtype=torch.float64)
    expected = slow_cross_entropy(logits, targets)
    assert binary_cross_entropy(logits, targets).item() == pytest.approx(expected, rel=1e-12)


def test_labels_add_up_and_rows_average():
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[1.0, 0.0, 0.0, 1.0]] * 3)
    value = binary_cross_entropy(logits, targets)
    wider = binary_cross_entropy(torch.cat([logits, logits], 1), torch.cat([targets, targets], 1))
    longer = binary_cross_entropy(torch.cat([logits, logits]), torch.cat([targets, targets]))
    torch.testing.assert_close(wider, 2 * value)
    torch.testing.assert_close(longer, value)


def test_gradient_is_that_of_finite_differences():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    targets = torch.rand(3, 4, generator=generator, dtype=torch.float64).round()
    assert torch.autograd.gradcheck(
        lambda z: binary_cross_entropy(z, targets), (logits.requires_grad_(),)
    )


def test_extreme_logits_stay_finite_in_float32():
    logits = torch.tensor([[200.0, -200.0, 200.0, -200.0]], requires_grad=True)
    loss = binary_cross_entropy(logits, torch.tensor([[1.0, 0.0, 0.0, 1.0]]))
    loss.backward()
    assert loss.item() == 400.0
    assert logits.grad.tolist() == [[0.0, 0.0, 1.0, -1.0]]
