from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from train import methods
from train.cli import main
from train.errors import ConfigError
from train.optimizer import PlannedOptimizer, TaskOptimizer, linear_decay, warm_up_and_cosine


def test_warm_up_rises_to_one_and_the_cosine_falls_to_zero():
    assert warm_up_and_cosine(0.0) == 0
    assert warm_up_and_cosine(0.025) == pytest.approx(0.5)
    assert warm_up_and_cosine(0.05) == 1
    assert warm_up_and_cosine(0.05 + 0.95 / 3) == pytest.approx((1 + math.cos(math.pi / 3)) / 2)
    assert warm_up_and_cosine(1.0) == 0


def test_linear_decay_never_goes_below_zero():
    assert [linear_decay(done) for done in (0.0, 0.25, 1.0, 1.5)] == [1, 0.75, 0, 0]


def networks():
    torch.manual_seed(0)
    return nn.Linear(3, 4), nn.Linear(4, 2)


def loss_of(first, second, step):
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(step))
    return (second(torch.tanh(first(x))) - 50).square().mean()


def trained(optimizer_of, steps):
    first, second = networks()
    optimizer = optimizer_of(first, second)
    for step in range(steps):
        optimizer.step(loss_of(first, second, step))
    return [*first.parameters(), *second.parameters()], optimizer


def planned(first, second):
    return PlannedOptimizer(
        [(first.parameters(), 0.1), (second.parameters(), 0.02)],
        weight_decay=0.5, clip_norm=1.0, plan=linear_decay, n_steps=6,
    )  # fmt: skip


def test_is_adamw_on_clipped_gradients_with_two_rates_and_no_decay_of_vectors():
    weights, _ = trained(planned, 5)
    first, second = networks()
    adam = torch.optim.AdamW(
        [
            {"params": [first.weight], "lr": 0.1, "weight_decay": 0.5},
            {"params": [first.bias], "lr": 0.1, "weight_decay": 0.0},
            {"params": [second.weight], "lr": 0.02, "weight_decay": 0.5},
            {"params": [second.bias], "lr": 0.02, "weight_decay": 0.0},
        ]
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: 1 - step / 6)
    parameters = [*first.parameters(), *second.parameters()]
    for step in range(5):
        adam.zero_grad()
        loss_of(first, second, step).backward()
        assert nn.utils.clip_grad_norm_(parameters, 1.0) > 1  # or nothing would be clipped
        adam.step()
        schedule.step()
    for weight, expected in zip(weights, parameters, strict=True):
        torch.testing.assert_close(weight, expected)


def test_goes_on_from_a_saved_state():
    whole, _ = trained(planned, 5)
    half, optimizer = trained(planned, 3)
    first, second = networks()
    with torch.no_grad():
        for weight, saved in zip([*first.parameters(), *second.parameters()], half, strict=True):
            weight.copy_(saved)
    resumed = planned(first, second)
    resumed.load_state_dict(optimizer.state_dict())
    for step in (3, 4):
        resumed.step(loss_of(first, second, step))
    for weight, expected in zip([*first.parameters(), *second.parameters()], whole, strict=True):
        assert torch.equal(weight, expected)


def test_a_scaler_changes_nothing_but_is_saved():
    def scaled(first, second):
        return PlannedOptimizer(
            [(first.parameters(), 0.1), (second.parameters(), 0.02)],
            weight_decay=0.5, clip_norm=1.0, plan=linear_decay, n_steps=6,
            scaler=torch.amp.GradScaler("cpu"),
        )  # fmt: skip

    expected, _ = trained(planned, 4)
    weights, optimizer = trained(scaled, 4)
    for weight, other in zip(weights, expected, strict=True):
        torch.testing.assert_close(weight, other)
    assert optimizer.state_dict()["scaler"]["scale"] > 1


def rates_over_epochs(scores, **options):
    network = nn.Linear(2, 1)
    optimizer = TaskOptimizer(network.parameters(), lr=0.8, weight_decay=0.0, **options)
    rates = []
    for score in scores:
        rates.append(optimizer.adam.param_groups[0]["lr"])
        optimizer.step(network(torch.ones(1, 2)).sum())
        optimizer.end_epoch(score)
    return rates


def test_a_rate_falls_evenly_over_its_epochs_whatever_validation_says():
    assert rates_over_epochs([0.1, 0.1, 0.9, 0.2], falling_epochs=4) == pytest.approx(
        [0.8, 0.6, 0.4, 0.2]
    )
    assert rates_over_epochs([0.1], falling_epochs=1) == [0.8]


def test_a_rate_is_halved_when_validation_stalls():
    assert rates_over_epochs([0.1, 0.2, *[0.2] * 7]) == [0.8] * 8 + [0.4]


def test_a_run_whose_rate_falls_over_its_epochs_is_not_prolonged(tmp_path, capsys):
    run = ["ce", "--dataset", "demo", "--no-report", "--out", str(tmp_path / "run")]
    assert main([*run, "--schedule", "linear", "--epochs", "1"]) == 0
    assert main([*run, "--schedule", "linear", "--epochs", "2", "--resume"]) == 2
    assert "has --epochs 1, not 2: resume it with the same options" in capsys.readouterr().err


def test_tables_that_are_sampled_have_no_schedule():
    with pytest.raises(ConfigError, match="leave one of them out"):
        methods.load("seal").Config(negatives=10, schedule="linear")
