"""Networks over words against loops written from their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from train.nets.tagging import WordEnergy, at_most_one, log_odds, sinusoids


class Batch:
    """What an energy looks at of a batch."""

    def __init__(self, word_pieces: torch.Tensor) -> None:
        self.word_pieces = word_pieces


class Vectors(nn.Module):
    """Vectors of words that are given."""

    def __init__(self, values: torch.Tensor) -> None:
        super().__init__()
        self.values, self.width = values, values.shape[-1]

    def forward(self, x: Batch) -> torch.Tensor:
        return self.values


def test_the_sigmoid_of_log_odds_is_the_softmax_however_sure():
    raw = 30 * torch.randn(50, 7, generator=torch.Generator().manual_seed(1)).double()
    torch.testing.assert_close(log_odds(raw).sigmoid(), raw.softmax(-1))
    torch.testing.assert_close(nn.functional.logsigmoid(log_odds(raw)), raw.log_softmax(-1))
    assert log_odds(torch.tensor([[200.0, 0.0, 0.0]])).isfinite().all()
    raw = raw[:3].div(10).requires_grad_()
    assert torch.autograd.gradcheck(log_odds, (raw,))


def test_energy_is_the_formula():
    torch.manual_seed(2)
    words, labels, units, counts = 4, 5, 3, (4, 2)
    vectors = torch.randn(2, words, 6, dtype=torch.float64)
    net = WordEnergy(Vectors(vectors), labels, units).double().eval().requires_grad_(False)
    pieces = torch.tensor([[1, 2, 3, 4], [2, 3, 0, 0]])
    y = torch.rand(2, 3, words * labels, dtype=torch.float64)
    found = net(Batch(pieces), y)
    for row, count in enumerate(counts):
        for k in range(3):
            expected = slow_score(net, vectors[row], y[row, k].view(words, labels), count)
            assert found[row, k].item() == pytest.approx(expected)
    torch.testing.assert_close(net(Batch(pieces), y[:, 1]), found[:, 1])


def slow_score(net: WordEnergy, vectors, y, count: int) -> float:
    """One label set of one row, word by word; what lies beyond `count` is not looked at."""
    labels = y.shape[1]
    local = sum(
        float(y[n, j] * (net.labels[j] @ vectors[n])) for n in range(count) for j in range(labels)
    )
    waves = labels // 2
    asked = []
    for n in range(count):
        position = torch.zeros(labels, dtype=torch.float64)
        for i in range(waves):
            angle = n / 10_000 ** (i / (waves - 1))
            position[i], position[waves + i] = math.sin(angle), math.cos(angle)
        asked.append(net.asking.weight @ (y[n] + position) + net.asking.bias)
    units = len(asked[0]) // 3
    joint = 0.0
    for n in range(count):
        weights = [
            math.exp(float(asked[n][:units] @ asked[m][units : 2 * units]) / math.sqrt(labels))
            for m in range(count)
        ]
        mixed = sum(w / sum(weights) * asked[m][2 * units :] for m, w in enumerate(weights))
        joint += float((net.answer.weight @ mixed + net.answer.bias).max())
    return local + joint


def test_sinusoids_of_an_odd_width_end_in_zeros():
    waves = sinusoids(5, 7, torch.zeros(1))
    assert waves.shape == (5, 7)
    assert not waves[:, 6].any()
    assert waves[0].tolist() == [0, 0, 0, 1, 1, 1, 0]


def test_projection_is_the_nearest_point_with_a_sum_of_at_most_one():
    generator = torch.Generator().manual_seed(3)
    y = (2 * torch.randn(200, 2 * 4, generator=generator)).double()
    found = at_most_one(y, 4).view(-1, 4)
    points = y.view(-1, 4)
    assert (found >= 0).all()
    assert (found.sum(-1) <= 1 + 1e-9).all()
    # No allowed point is nearer: the way to any of them begins at an angle of 90 degrees or more.
    others = torch.rand(500, 4, generator=generator).double()
    others /= others.sum(-1, keepdim=True).clamp_min(1)
    others = torch.cat([others, torch.eye(4).double(), torch.zeros(1, 4).double()])
    gains = torch.einsum("pl,pol->po", points - found, others[None] - found[:, None])
    assert gains.max() <= 1e-9
    inside = torch.tensor([[0.2, 0.3, 0.0, 0.1]], dtype=torch.float64)
    assert torch.equal(at_most_one(inside, 4), inside)
