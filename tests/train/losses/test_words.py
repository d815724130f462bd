"""Losses of labels on words against loops written from their formulas."""

from __future__ import annotations

import math

import pytest
import torch

from train.losses import (
    WordNoise,
    manhattan_cost,
    relaxed_word_samples,
    word_cost,
    word_cross_entropy,
)
from train.nets.tagging import ABSENT, log_odds

LABELS, WORDS = 4, 3
COUNTS = (3, 1)
"""Words of the two rows."""


@pytest.fixture
def raw() -> torch.Tensor:
    return torch.randn(2, WORDS, LABELS, generator=torch.Generator().manual_seed(1)).double()


@pytest.fixture
def logits(raw) -> torch.Tensor:
    flat = log_odds(raw)
    for row, count in enumerate(COUNTS):
        flat[row, count:] = ABSENT
    return flat.flatten(1)


@pytest.fixture
def truth() -> torch.Tensor:
    marks = torch.zeros(2, WORDS, LABELS, dtype=torch.float64)
    for row, word, label in ((0, 0, 1), (0, 1, 0), (0, 2, 3), (1, 0, 2)):
        marks[row, word, label] = 1
    return marks.flatten(1)


def test_cross_entropy_is_a_mean_over_words_and_then_over_rows(raw, logits, truth):
    total = 0.0
    for row, count in enumerate(COUNTS):
        for word in range(count):
            label = int(truth[row].view(WORDS, LABELS)[word].argmax())
            values = raw[row, word].tolist()
            log_p = values[label] - math.log(sum(map(math.exp, values)))
            total -= log_p / count / len(COUNTS)
    assert word_cross_entropy(logits, truth, LABELS).item() == pytest.approx(total)


def test_log_probability_of_noise_is_that_of_its_words(raw, logits, truth):
    noise = WordNoise(logits, LABELS)
    sets = noise.candidates(truth, 5, torch.Generator().manual_seed(2))
    found = noise.log_probability(sets)
    p = raw.softmax(-1)
    for row, count in enumerate(COUNTS):
        for number, marks in enumerate(sets[row].view(-1, WORDS, LABELS)):
            labels = [int(marks[word].argmax()) for word in range(count)]
            expected = sum(math.log(p[row, word, label]) for word, label in enumerate(labels))
            assert found[row, number].item() == pytest.approx(expected)


def test_noise_gives_each_word_one_label_as_often_as_is_likely(raw, logits, truth):
    sets = WordNoise(logits, LABELS).candidates(truth, 20_000, torch.Generator().manual_seed(3))
    assert torch.equal(sets[:, 0], truth)
    drawn = sets[:, 1:].unflatten(2, (WORDS, LABELS))
    for row, count in enumerate(COUNTS):
        assert (drawn[row, :, :count].sum(-1) == 1).all()
        assert not drawn[row, :, count:].any()
        # Four standard deviations of a share of 20,000.
        expected = raw[row, :count].softmax(-1)
        torch.testing.assert_close(drawn[row, :, :count].mean(0), expected, rtol=0, atol=0.015)


def test_relaxed_samples_sum_to_one_and_end_with_the_probabilities(raw, logits):
    points = relaxed_word_samples(
        logits, LABELS, 6, deviation=1.0, generator=torch.Generator().manual_seed(4)
    ).unflatten(2, (WORDS, LABELS))
    for row, count in enumerate(COUNTS):
        torch.testing.assert_close(points[row, -1, :count], raw[row, :count].softmax(-1))
        torch.testing.assert_close(
            points[row, :, :count].sum(-1), torch.ones(6, count, dtype=torch.float64)
        )
        assert points[row, :, count:].max() < 1e-30 if count < WORDS else True
    assert points[0, 0].sub(points[0, -1]).abs().max() > 0.01


def test_the_cost_does_not_depend_on_the_padding(truth):
    y = torch.rand(2, WORDS, LABELS, generator=torch.Generator().manual_seed(5)).double()
    y[1, 1:] = 0
    padded = word_cost(manhattan_cost(y.flatten(1), truth), truth, LABELS)
    alone = manhattan_cost(y[1:, :1].flatten(1), truth[1:, :LABELS])
    torch.testing.assert_close(padded[1:], alone)
    torch.testing.assert_close(padded[:1], manhattan_cost(y[:1].flatten(1), truth[:1]))


def test_gradients_of_the_cross_entropy(raw, truth):
    raw = raw[:1].requires_grad_()
    assert torch.autograd.gradcheck(
        lambda values: word_cross_entropy(log_odds(values).flatten(1), truth[:1], LABELS), (raw,)
    )
