from __future__ import annotations

import math

import pytest
import torch

from train.losses import label_contrastive


def slow_contrastive(similarities, y, temperature):
    """-(1/|P|) sum over p in P of log( exp(s_p / tau) / sum over t of exp(s_t / tau) )."""
    values = []
    for row, truth in zip(similarities.tolist(), y.tolist(), strict=True):
        total = sum(math.exp(s / temperature) for s in row)
        true = [s for s, t in zip(row, truth, strict=True) if t == 1]
        terms = [-math.log(math.exp(s / temperature) / total) for s in true]
        values.append(sum(terms) / len(terms) if terms else 0.0)
    return torch.tensor(values, dtype=torch.float64)


def drawn(rows, labels, share):
    generator = torch.Generator().manual_seed(rows * 10 + labels)
    similarities = 2 * torch.randn(rows, labels, generator=generator, dtype=torch.float64)
    y = (torch.rand(rows, labels, generator=generator) < share).double()
    return similarities, y


@pytest.mark.parametrize(("rows", "labels"), [(1, 1), (1, 7), (6, 1), (5, 4)])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_equals_the_formula(rows, labels, share, temperature):
    similarities, y = drawn(rows, labels, share)
    value = label_contrastive(similarities, y, temperature=temperature)
    torch.testing.assert_close(value, slow_contrastive(similarities, y, temperature))


def test_gradient_is_that_of_finite_differences():
    similarities, y = drawn(5, 4, 0.5)
    y[0], y[1] = 0, 1
    assert torch.autograd.gradcheck(
        lambda s: label_contrastive(s, y, temperature=0.7), (similarities.requires_grad_(),)
    )


def test_gradient_by_the_embedding_is_that_of_the_appendix():
    """(1/tau) [ sum over P of v_t (softmax_t - 1/|P|) + sum over N of v_t softmax_t ], App. A.2."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    v = torch.randn(3, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1, 0, 1, 0, 0, 1], dtype=torch.float64)
    tau = 0.4
    label_contrastive((labels @ v)[None], y[None], temperature=tau).sum().backward()

    exponentials = [math.exp(value / tau) for value in (labels @ v).tolist()]
    expected = torch.zeros(3, dtype=torch.float64)
    for label, exponential, is_true in zip(labels, exponentials, y.tolist(), strict=True):
        share = exponential / sum(exponentials)
        expected += label * ((share - 1 / 3) if is_true else share) / tau
    torch.testing.assert_close(v.grad, expected)


def test_gradient_through_the_normalisation_is_projected():
    """With v = w / |w| it is (I - v v^T) / |w| times the gradient by v (App. A.2)."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    w = torch.randn(3, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[1, 0, 0, 1, 0]], dtype=torch.float64)
    label_contrastive((labels @ (w / w.norm()))[None], y).sum().backward()

    v = (w / w.norm()).detach().requires_grad_()
    label_contrastive((labels @ v)[None], y).sum().backward()
    projection = torch.eye(3, dtype=torch.float64) - torch.outer(v, v).detach()
    torch.testing.assert_close(w.grad, projection @ v.grad / w.norm().detach())


def test_with_one_label_of_each_kind_it_is_a_triplet_loss_to_first_order():
    """log(1 + exp(d)), d = |v - v_+|^2 - |v - v_-|^2, for unit vectors and tau = 1/2 (App. A.1)."""
    for scale in (1.0, 1e-4):
        v, true, false = (
            torch.nn.functional.normalize(torch.tensor(vector, dtype=torch.float64), dim=0)
            for vector in ([1.0, 0.0], [1.0, 0.5 * scale], [1.0, -0.8 * scale])
        )
        similarities = torch.stack([v @ true, v @ false])[None]
        value = label_contrastive(similarities, torch.tensor([[1.0, 0.0]]), temperature=0.5)
        difference = (v - true).square().sum() - (v - false).square().sum()
        torch.testing.assert_close(value[0], torch.nn.functional.softplus(difference))
    # What the paper's linear form, 1 + d, keeps: the slope of the exponential at d = 0.
    assert value.expm1().item() == pytest.approx(1 + difference.item(), abs=1e-12)


def test_extreme_similarities_stay_finite_in_float32():
    similarities = torch.tensor([[300.0, -300.0], [300.0, -300.0]], requires_grad=True)
    value = label_contrastive(similarities, torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    value.sum().backward()
    assert value.tolist() == [0.0, 600.0]
    assert similarities.grad.tolist() == [[0.0, 0.0], [1.0, -1.0]]
