"""The running mean of the weights: its formula, what is validated and kept, and resuming."""

from __future__ import annotations

import json

import pytest
import torch
from test_every_method import StepCounter, small_config, untimed
from torch import nn

from train import methods
from train.averaging import RunningMean
from train.checkpoint import load_checkpoint
from train.cli import main
from train.errors import ConfigError
from train.loop import Position, fit, predict, restore, seed_everything, training_state


def test_is_the_mean_of_the_formula():
    torch.manual_seed(0)
    network = nn.Linear(3, 2)
    network.bias.requires_grad_(False)
    mean = RunningMean(network, 0.4)
    slow = network.weight.detach().double()
    for step in range(1, 9):
        with torch.no_grad():
            network.weight.add_(torch.randn(2, 3))
        mean.follow()
        decay = min(0.4, (1 + step) / (10 + step))
        slow = decay * slow + (1 - decay) * network.weight.detach().double()
    assert mean.weights.keys() == {"weight"}
    torch.testing.assert_close(mean.weights["weight"].double(), slow, rtol=1e-6, atol=1e-6)


def test_lends_its_weights_and_takes_them_back():
    network = nn.Linear(3, 2)
    mean = RunningMean(network, 0.9)
    at_first = network.weight.detach().clone()
    with torch.no_grad():
        network.weight.add_(1)
    with mean.in_place():
        assert torch.equal(network.weight, at_first)
    assert torch.equal(network.weight, at_first + 1)
    with pytest.raises(KeyError), mean.in_place():
        raise KeyError
    assert torch.equal(network.weight, at_first + 1)


def trained(name, problem, stop_after=None, epochs=2):
    config = small_config(name, {"epochs": epochs})
    seed_everything(3)
    method = methods.load(name).build(config, problem)
    method.mean = RunningMean(method.predictor, 0.8)
    position, counter = Position(), StepCounter(stop_after)
    fit(
        method, problem, config,
        seed=3, position=position, observer=counter, should_stop=counter.should_stop,
    )  # fmt: skip
    return method, position, config


def test_the_mean_is_what_is_kept_and_the_weights_go_on(dense_problem):
    method, position, _ = trained("ce", dense_problem, epochs=1)
    for name, value in position.best_weights.items():
        assert torch.equal(value, method.mean.weights[name])
        assert not torch.equal(value, method.predictor.state_dict()[name])
    own = predict(method.predictor, dense_problem.validation.x, dense_problem.device)
    with method.mean.in_place():
        kept = predict(method.predictor, dense_problem.validation.x, dense_problem.device)
    assert (own != kept).any()


# One stage; two stages, whose predictors are different networks; a teacher beside the predictor.
@pytest.mark.parametrize("name", ["ce", "spen", "seal"])
@pytest.mark.parametrize("stop_after", [3, 11])
def test_a_resumed_run_ends_with_the_same_mean(name, stop_after, dense_problem):
    whole, whole_position, config = trained(name, dense_problem)
    stopped, position, _ = trained(name, dense_problem, stop_after=stop_after)
    state = training_state(stopped, position)
    resumed = methods.load(name).build(config, dense_problem)
    resumed.mean = RunningMean(resumed.predictor, 0.8)
    position = restore(state, resumed)
    fit(
        resumed, dense_problem, config,
        seed=3, position=position, observer=StepCounter(), should_stop=lambda: False,
    )  # fmt: skip
    assert untimed(position.history) == untimed(whole_position.history)
    assert resumed.mean.steps == whole.mean.steps
    for key, value in whole.mean.weights.items():
        assert torch.equal(value, resumed.mean.weights[key])
    for key, value in whole_position.best_weights.items():
        assert torch.equal(value, position.best_weights[key])


def test_a_run_averages_on_demand(tmp_path):
    arguments = ["ce", "--dataset", "demo", "--epochs", "2", "--no-report"]
    weights = {}
    for share in ("0", "0.9"):
        assert main([*arguments, "--average", share, "--out", str(tmp_path / share)]) == 0
        weights[share] = load_checkpoint(tmp_path / share / "model.pt").weights
    losses = [
        [json.loads(line)["cross_entropy"] for line in path.read_text("utf-8").splitlines()]
        for path in (tmp_path / "0" / "history.jsonl", tmp_path / "0.9" / "history.jsonl")
    ]
    assert losses[0] == losses[1]  # training itself is the same
    assert any(not torch.equal(weights["0"][key], weights["0.9"][key]) for key in weights["0"])


def test_refuses_what_cannot_be():
    with pytest.raises(ConfigError, match="--average must be at least 0 and below 1, got 1"):
        methods.load("ce").Config(average=1.0)
    with pytest.raises(ConfigError, match="--then finetune"):
        methods.load("abalone").Config(average=0.9)
    methods.load("abalone").Config(average=0.9, then="finetune")
