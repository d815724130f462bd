"""Scores of many candidates, against the same with a gradient for each."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from train.data.dataset import ImageShape
from train.losses import nce_ranking
from train.nets import segmentation, selective
from train.nets.segmentation import ConvolutionalEnergy
from train.nets.selective import LEFT_OUT, selective_scores, that_matter

ROWS, MASKS = 2, 70
IMAGE = ImageShape(height=12, width=8)


def squares(points: Tensor, numbers: Tensor, scales: Tensor) -> Tensor:
    return (points * scales.index_select(0, numbers)).square().sum(1)


def test_those_that_matter_are_all_but_a_sliver():
    gradient = torch.tensor([-0.5, LEFT_OUT / 4, 0.25, -LEFT_OUT / 4, 0.0, 0.25])
    assert sorted(that_matter(gradient).tolist()) == [0, 2, 5]
    assert len(that_matter(torch.zeros(3))) == 0


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_scores_and_gradients_are_those_of_all(monkeypatch, chunk):
    monkeypatch.setattr(selective, "CHUNK", chunk)
    torch.manual_seed(0)
    candidates = torch.rand(50, 3).double(), torch.randint(4, (50,))
    scales = torch.rand(4, 3).double().requires_grad_()
    importance = torch.rand(50).double()
    expected = squares(*candidates, scales)
    (gradient,) = torch.autograd.grad(expected @ importance, scales)
    scores = selective_scores(squares, candidates, [scales])
    assert torch.equal(scores, expected)
    torch.testing.assert_close(torch.autograd.grad(scores @ importance, scales)[0], gradient)


def test_candidates_without_a_gradient_are_not_computed_twice():
    asked: list[int] = []

    def counted(points: Tensor, scale: Tensor) -> Tensor:
        asked.append(len(points))
        return points * scale

    scale = torch.ones(1, requires_grad=True)
    scores = selective_scores(counted, (torch.arange(50.0),), [scale])
    scores[[3, 40]].sum().backward()
    assert asked == [50, 2]
    assert scale.grad == 43


def ranked(net: ConvolutionalEnergy, x: Tensor, y: Tensor, noise: Tensor) -> list[Tensor]:
    net.zero_grad()
    torch.manual_seed(1)  # the same units are dropped
    nce_ranking(net(x, y), noise).backward()
    return [weight.grad.clone() for weight in net.parameters()]


def test_masks_rank_as_they_do_one_and_all(monkeypatch):
    torch.manual_seed(0)
    net = ConvolutionalEnergy(IMAGE).double()
    height, width = IMAGE.crop
    x = torch.rand(ROWS, height * width * 3).double()
    y = (torch.rand(ROWS, MASKS, height * width) < 0.5).double()
    # Ten of them likely, the others next to impossible.
    noise = torch.where(torch.arange(MASKS) < 10, 0.0, 60.0).double().expand(ROWS, -1)
    ours = ranked(net, x, y, noise)
    monkeypatch.setattr(segmentation, "MANY_MASKS", MASKS)
    for gradient, expected in zip(ours, ranked(net, x, y, noise), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-7)
