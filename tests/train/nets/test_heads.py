from __future__ import annotations

import math

import pytest
import torch

from train.nets.heads import AveragedHeads, Classifier, PlainRows, ProjectionHead, mean_logit


def test_the_mean_logit_is_that_of_the_mean_probability():
    logits = torch.tensor([[-3.0, 0.5], [2.0, 0.5], [0.1, -40.0]], dtype=torch.float64)
    expected = []
    for column in logits.T.tolist():
        mean = sum(1 / (1 + math.exp(-value)) for value in column) / 3
        expected.append(math.log(mean / (1 - mean)))
    assert mean_logit(logits, dim=0).tolist() == pytest.approx(expected)


def test_the_mean_of_one_or_of_equal_logits_is_exact_even_where_probabilities_are_not():
    values = torch.tensor([-80.0, -30.0, 0.0, 7.0, 30.0, 80.0])
    torch.testing.assert_close(mean_logit(values[None], dim=0), values)
    torch.testing.assert_close(mean_logit(values.expand(3, 6), dim=0), values)


def test_extreme_logits_have_finite_means():
    assert torch.isfinite(mean_logit(torch.tensor([[1e4, -1e4], [-1e4, -1e4]]), dim=0)).all()


def test_averaged_heads_score_the_mean_of_their_sigmoids():
    torch.manual_seed(0)
    heads = AveragedHeads(5, 4, 3)
    heads.weight.normal_()
    heads.bias.normal_()
    features = torch.randn(7, 5)
    scores = [torch.sigmoid(features @ heads.weight[:, h] + heads.bias[h]) for h in range(3)]
    torch.testing.assert_close(heads(features).sigmoid(), torch.stack(scores).mean(0))


def test_a_classifier_on_plain_rows_embeds_them_as_they_are():
    classifier = Classifier(PlainRows(), AveragedHeads(5, 4, 3))
    rows = torch.randn(2, 5)
    assert classifier.embed(rows) is rows
    assert classifier(rows).shape == (2, 4)


def test_projections_have_length_one():
    projected = ProjectionHead(6, 3)(torch.randn(2, 4, 6, dtype=torch.float32))
    torch.testing.assert_close(projected.norm(dim=-1), torch.ones(2, 4))
