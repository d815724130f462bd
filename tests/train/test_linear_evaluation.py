from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from torch.nn.functional import binary_cross_entropy_with_logits

from train.errors import ConfigError
from train.linear_evaluation import GRID, INITIALISATIONS, HeadGrid, LinearEvaluation
from train.nets.heads import AveragedHeads, PlainRows

CPU = torch.device("cpu")


def drawn(rows, size=5, labels=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, size, generator=generator)
    y = (features[:, :labels] + 0.3 * torch.randn(rows, labels, generator=generator) > 0.8).float()
    return features, y


def trained_grid(steps=12, n_steps=20, seed=0):
    torch.manual_seed(seed)
    grid = HeadGrid(5, 3, n_steps, CPU)
    starts = grid.weights[0].detach().clone()
    for step in range(steps):
        grid.step(*drawn(16, seed=step))
    return grid, starts


def test_every_head_is_a_logistic_regression_by_itself():
    """Each point, initialisation and label trained alone by torch's AdamW, in a plain loop."""
    grid, starts = trained_grid()
    for point in (0, 7, 12, len(GRID) - 1):
        rate, decay = GRID[point]
        for start in range(INITIALISATIONS):
            weight = starts[:, start].clone().requires_grad_()
            bias = torch.zeros(3, requires_grad=True)
            adam = torch.optim.AdamW([weight, bias], lr=rate, weight_decay=decay)
            schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: 1 - step / 20)
            for step in range(12):
                features, y = drawn(16, seed=step)
                adam.zero_grad()
                losses = [
                    binary_cross_entropy_with_logits(features @ weight[:, j] + bias[j], y[:, j])
                    for j in range(3)
                ]
                sum(losses).backward()
                adam.step()
                schedule.step()
            torch.testing.assert_close(grid.weights[point][:, start], weight, rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(grid.biases[point][start], bias, rtol=1e-3, atol=1e-4)


def test_all_points_begin_with_the_same_initialisations():
    torch.manual_seed(0)
    grid = HeadGrid(5, 3, 10, CPU)
    assert all(torch.equal(weight, grid.weights[0]) for weight in grid.weights)
    assert not torch.equal(grid.weights[0][:, 0], grid.weights[0][:, 1])
    bound = (6 / (5 + 3)) ** 0.5  # Xavier's, of a layer from features to labels
    assert grid.weights[0].abs().max() <= bound
    assert not any(bias.any() for bias in grid.biases)


def test_the_choice_of_each_label_is_the_best_f1_of_averaged_probabilities():
    grid, _ = trained_grid()
    features, y = drawn(60, seed=99)
    choice = grid.choose([(features[:25], y[:25]), (features[25:], y[25:])])
    scores = grid.logits(features).sigmoid().mean(2).detach().numpy()  # (rows, grid, labels)
    for label in range(3):
        f1 = [f1_score(y[:, label], scores[:, point, label] >= 0.5) for point in range(len(GRID))]
        assert f1[choice[label]] == pytest.approx(max(f1))
    assert len(set(f1)) > 1  # there was something to choose


def test_without_a_true_row_the_lowest_cross_entropy_decides():
    grid, _ = trained_grid()
    features, y = drawn(60, seed=99)
    y[:, 1] = 0
    grid.biases[4].data[:, 1] = -100  # predicts nothing, and is sure of it
    grid.weights[4].data[:, :, 1] = 0
    assert grid.choose([(features, y)])[1] == 4


def test_the_chosen_heads_score_as_their_point_of_the_grid():
    grid, _ = trained_grid()
    heads = AveragedHeads(5, 3, INITIALISATIONS)
    grid.fill(heads, torch.tensor([2, 14, 7]))
    features, _ = drawn(9, seed=5)
    scores = grid.logits(features).sigmoid().mean(2)
    expected = torch.stack([scores[:, 2, 0], scores[:, 14, 1], scores[:, 7, 2]], 1)
    torch.testing.assert_close(heads(features).sigmoid(), expected)


def test_goes_on_from_a_saved_state():
    whole, _ = trained_grid(steps=6)
    half, _ = trained_grid(steps=3)
    torch.manual_seed(5)
    resumed = HeadGrid(5, 3, 20, CPU)
    resumed.load_state_dict(half.state_dict())
    for step in range(3, 6):
        resumed.step(*drawn(16, seed=step))
    assert all(torch.equal(a, b) for a, b in zip(whole.weights, resumed.weights, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(whole.biases, resumed.biases, strict=True))


class Settings:
    linear_epochs, linear_batch_size = 4, 16


def test_finds_labels_that_follow_from_the_rows(dense_problem):
    torch.manual_seed(0)
    method = LinearEvaluation(Settings(), dense_problem, PlainRows(), 12)
    rows = torch.arange(32)
    for _ in range(8):
        method.step(dense_problem.train.x.batch(rows), dense_problem.train.y.take(rows))
    method.before_validation()
    part = dense_problem.validation
    scores = method.predictor(part.x.take(torch.arange(len(part)))).sigmoid()
    truth = np.asarray(part.targets.todense())
    assert f1_score(truth, scores.numpy() >= 0.5, average="micro") > 0.6


def test_refuses_a_grid_that_is_too_large(dense_problem):
    with pytest.raises(ConfigError, match="weights, and 134,217,728 is the limit"):
        LinearEvaluation(Settings(), dense_problem, PlainRows(), 10**6)
