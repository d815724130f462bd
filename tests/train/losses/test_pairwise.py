from __future__ import annotations

import math

import pytest
import torch

from train.losses import exponential_ranking


def slow_ranking(probabilities, y, sharpness):
    """1 / (|P| |N|) times the sum over P x N of exp(-sharpness (p_p - p_n)), row by row."""
    values = []
    for scores, truth in zip(probabilities.tolist(), y.tolist(), strict=True):
        true = [p for p, t in zip(scores, truth, strict=True) if t == 1]
        false = [p for p, t in zip(scores, truth, strict=True) if t == 0]
        total = sum(math.exp(-sharpness * (p - n)) for p in true for n in false)
        values.append(total / (len(true) * len(false)) if true and false else 0.0)
    return torch.tensor(values, dtype=torch.float64)


def drawn(rows, labels, share, seed=0):
    generator = torch.Generator().manual_seed(seed)
    probabilities = torch.rand(rows, labels, generator=generator, dtype=torch.float64)
    y = (torch.rand(rows, labels, generator=generator) < share).double()
    return probabilities, y


@pytest.mark.parametrize(("rows", "labels"), [(1, 1), (1, 7), (6, 1), (5, 4)])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("sharpness", [5.0, 1.5])
def test_equals_the_formula(rows, labels, share, sharpness):
    probabilities, y = drawn(rows, labels, share)
    value = exponential_ranking(probabilities, y, sharpness=sharpness)
    torch.testing.assert_close(value, slow_ranking(probabilities, y, sharpness))


def test_takes_several_draws_of_the_same_rows():
    first, y = drawn(5, 4, 0.4)
    second, _ = drawn(5, 4, 0.4, seed=1)
    together = exponential_ranking(torch.stack([first, second]), y)
    torch.testing.assert_close(together[0], exponential_ranking(first, y))
    torch.testing.assert_close(together[1], exponential_ranking(second, y))


def test_gradient_is_that_of_finite_differences():
    probabilities, y = drawn(4, 5, 0.5)
    y[0], y[1] = 0, 1
    assert torch.autograd.gradcheck(
        lambda p: exponential_ranking(p, y), (probabilities.requires_grad_(),)
    )


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_a_row_without_pairs_counts_nothing_and_pulls_nowhere(label):
    probabilities = torch.rand(2, 3, requires_grad=True)
    value = exponential_ranking(probabilities, torch.full((2, 3), label))
    value.sum().backward()
    assert value.tolist() == [0.0, 0.0]
    assert (probabilities.grad == 0).all()
