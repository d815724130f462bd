"""The two-way loss: its formula, and the theory of its paper."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from train.losses import label_wise, row_wise, two_way

SETTINGS = [(4.0, 1.0, 0.0), (1.0, 1.0, 0.0), (1.0, 1.0, 0.5), (0.5, 2.0, -0.3)]


def slow_set(logits, truth, positive_temp, negative_temp, margin):
    """softplus(T_N log sum exp(x_n / T_N) + T_P log sum exp(-x_p / T_P) + margin), or None."""
    true = [math.exp(-x / positive_temp) for x, y in zip(logits, truth, strict=True) if y]
    false = [math.exp(x / negative_temp) for x, y in zip(logits, truth, strict=True) if not y]
    if not true:
        return None
    if not false:
        return 0.0  # softplus(-inf)
    argument = negative_temp * math.log(sum(false)) + positive_temp * math.log(sum(true)) + margin
    return math.log(1 + math.exp(argument))


def slow_rows(logits, targets, *settings):
    sets = [
        slow_set(x, y, *settings) for x, y in zip(logits.tolist(), targets.tolist(), strict=True)
    ]
    kept = [value for value in sets if value is not None]
    return sum(kept) / len(kept) if kept else 0.0


def drawn(rows=6, labels=5, share=0.4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, labels, generator=generator, dtype=torch.float64)
    return logits, (torch.rand(rows, labels, generator=generator) < share).double()


def options(positive_temp, negative_temp, margin):
    return {
        "positive_temperature": positive_temp,
        "negative_temperature": negative_temp,
        "margin": margin,
    }


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("share", [0.0, 0.15, 0.5, 1.0])
def test_equals_the_formula(settings, share):
    logits, targets = drawn(share=share)
    rows, labels = slow_rows(logits, targets, *settings), slow_rows(logits.T, targets.T, *settings)
    chosen = options(*settings)
    assert row_wise(logits, targets, **chosen).item() == pytest.approx(rows, rel=1e-12)
    assert label_wise(logits, targets, **chosen).item() == pytest.approx(labels, rel=1e-12)
    assert two_way(logits, targets, **chosen).item() == pytest.approx(rows + labels, rel=1e-12)


@pytest.mark.parametrize("settings", SETTINGS)
def test_gradient_is_that_of_finite_differences(settings):
    logits, targets = drawn(5, 4, 0.5)
    targets[0], targets[1], targets[:, 2] = 0, 1, 0
    assert torch.autograd.gradcheck(
        lambda x: two_way(x, targets, **options(*settings)), (logits.requires_grad_(),)
    )


@pytest.mark.parametrize("settings", SETTINGS)
def test_gradient_is_a_softmax_over_true_and_one_over_false_logits(settings):
    """dl/dx_p = -sigmoid(a) softmax_P(-x / T_P), dl/dx_n = sigmoid(a) softmax_N(x / T_N)."""
    positive_temp, negative_temp, margin = settings
    x = torch.tensor([0.3, -1.0, 2.0, 0.9, -0.2], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    row_wise(x[None], y[None], **options(*settings)).backward()
    true, false = x.detach()[y == 1], x.detach()[y == 0]
    argument = (
        negative_temp * (false / negative_temp).exp().sum().log()
        + positive_temp * (-true / positive_temp).exp().sum().log()
        + margin
    )
    strength = 1 / (1 + torch.exp(-argument))
    torch.testing.assert_close(x.grad[y == 1], -strength * (-true / positive_temp).softmax(0))
    torch.testing.assert_close(x.grad[y == 0], strength * (false / negative_temp).softmax(0))
    assert x.grad.sum().item() == pytest.approx(0, abs=1e-15)


def test_a_common_shift_of_a_set_changes_nothing():
    logits, targets = drawn()
    for_rows = torch.randn(6, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for_labels = torch.randn(1, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    rows, labels = row_wise(logits, targets), label_wise(logits, targets)
    torch.testing.assert_close(row_wise(logits + for_rows, targets), rows)
    torch.testing.assert_close(label_wise(logits + for_labels, targets), labels)
    torch.testing.assert_close(two_way(logits + 7, targets), two_way(logits, targets))
    assert not torch.allclose(row_wise(logits + for_labels, targets), rows)
    assert not torch.allclose(label_wise(logits + for_rows, targets), labels)


def test_with_one_true_label_it_is_softmax_cross_entropy():
    logits, _ = drawn()
    answers = torch.tensor([0, 3, 1, 4, 4, 2])
    targets = functional.one_hot(answers, 5).double()
    value = row_wise(logits, targets, positive_temperature=1.0)
    torch.testing.assert_close(value, functional.cross_entropy(logits, answers))


def test_biases_of_true_and_false_logits_are_a_margin():
    logits, targets = drawn()
    biased = logits + torch.where(targets == 1, 0.7, -0.4)
    expected = two_way(logits, targets, margin=-0.4 - 0.7)
    torch.testing.assert_close(two_way(biased, targets), expected)


def test_low_temperatures_compare_the_highest_false_with_the_lowest_true_logit():
    x, y = torch.tensor([[2.0, 5.0, 1.0, 3.5]]).double(), torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    value = row_wise(x, y, positive_temperature=1e-3, negative_temperature=1e-3)
    torch.testing.assert_close(value, functional.softplus(torch.tensor(3.5 - 2.0).double()))


@pytest.mark.parametrize("size", [1e2, 1e3, 1e5])
def test_masked_logits_do_not_leak_however_large_logits_are(size):
    """A confidently right true label must not look like a hard false one, nor the reverse."""
    right = torch.tensor([[size, -size, size, -size]], requires_grad=True)
    y = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    loss = row_wise(right, y, positive_temperature=1.0)
    loss.backward()
    assert loss.item() == 0
    assert right.grad.tolist() == [[0.0] * 4]

    wrong = torch.tensor([[-size, size, size, -size]], requires_grad=True)
    loss = row_wise(wrong, y, positive_temperature=1.0)
    loss.backward()
    assert loss.item() == 2 * size
    assert wrong.grad.tolist() == [[-1.0, 1.0, 0.0, 0.0]]


@pytest.mark.parametrize("loss", [row_wise, label_wise, two_way])
def test_no_true_label_at_all_is_zero_with_a_gradient_of_zero(loss):
    logits, targets = drawn(share=0.0)
    value = loss(logits.requires_grad_(), targets)
    value.backward()
    assert value.item() == 0
    assert not logits.grad.any()


@pytest.mark.parametrize("loss", [row_wise, label_wise, two_way])
def test_nothing_but_true_labels_is_zero_with_a_gradient_of_zero(loss):
    logits, targets = drawn(share=1.0)
    value = loss(logits.requires_grad_(), targets)
    value.backward()
    assert value.item() == 0
    assert not logits.grad.any()


def test_rows_without_labels_are_no_part_of_the_mean_and_full_ones_are():
    logits, targets = drawn(4, 5)
    targets[0] = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0])
    targets[1], targets[2], targets[3] = 0, 1, 0
    one = row_wise(logits[:1], targets[:1])
    torch.testing.assert_close(row_wise(logits[:2], targets[:2]), one)
    torch.testing.assert_close(row_wise(logits, targets), one / 2)
