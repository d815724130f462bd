"""The contract that every method inherits on the day its file appears."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from export.to_onnx import export_predictor
from export.verify import check_parity
from train import methods
from train.config import PRESETS, read_preset
from train.loop import Position, cpu_weights, fit, restore, seed_everything, training_state
from train.methods import Method
from train.problem import Problem

METHODS = methods.available()
PRESET_FILES = sorted(PRESETS.glob("*/*.toml"))


class StepCounter:
    """Counts batches, and says when there were enough of them."""

    def __init__(self, enough: int | None = None) -> None:
        self.steps, self.enough = 0, enough

    def on_step(self, *_):
        self.steps += 1

    def on_epoch(self, *_):
        pass

    def should_stop(self) -> bool:
        return self.steps == self.enough


def built(name: str, problem: Problem, **options: object) -> Method:
    module = methods.load(name)
    seed_everything(3)
    return module.build(module.Config(**options), problem)


def whole_batch(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.arange(len(problem.train))
    return problem.train.x.take(rows), problem.train.y.take(rows)


def trained(name: str, problem: Problem, epochs: int, stop_after: int | None = None):
    """Train, perhaps stopping after some steps; return the method and where it got to."""
    module = methods.load(name)
    config = module.Config(epochs=epochs, batch_size=8)
    seed_everything(3)
    method, position, counter = module.build(config, problem), Position(), StepCounter(stop_after)
    fit(
        method, problem, config,
        seed=3, position=position, observer=counter, should_stop=counter.should_stop,
    )  # fmt: skip
    return method, position, config


def assert_same_weights(one: Method, other: Method) -> None:
    for name, value in cpu_weights(one.predictor).items():
        assert torch.equal(value, cpu_weights(other.predictor)[name]), name


@pytest.mark.parametrize("name", METHODS)
def test_scores_have_one_column_a_label(name, problem):
    x, _ = whole_batch(problem)
    assert built(name, problem).predictor(x).shape == (32, problem.shape.n_labels)


@pytest.mark.parametrize("name", METHODS)
def test_has_a_one_line_summary(name):
    summary = methods.summary(methods.load(name))
    assert 20 <= len(summary) <= 90
    assert summary.endswith(".")


@pytest.mark.parametrize("path", PRESET_FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_builds_from_each_preset(path: Path, problem):
    module = methods.load(path.stem)
    module.build(read_preset(path, module.Config), problem)


@pytest.mark.parametrize("name", METHODS)
def test_cross_entropy_falls_on_a_batch(name, problem):
    method = built(name, problem, dropout=0.0)
    x, y = whole_batch(problem)

    def cross_entropy() -> float:
        with torch.no_grad():
            logits = method.predictor(x)
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, y).item()

    before = cross_entropy()
    for _ in range(60):
        method.step(x, y)
    assert cross_entropy() < 0.7 * before


@pytest.mark.parametrize("name", METHODS)
def test_same_seed_gives_the_same_weights(name, problem):
    assert_same_weights(trained(name, problem, 2)[0], trained(name, problem, 2)[0])


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_of_the_predictor_learns(name, problem):
    method = built(name, problem)
    before = cpu_weights(method.predictor)
    for _ in range(3):
        method.step(*whole_batch(problem))
    after = cpu_weights(method.predictor)
    unchanged = [key for key in before if torch.equal(before[key], after[key])]
    assert not unchanged


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("label", [0.0, 1.0], ids=["no labels", "all labels"])
def test_one_row_without_or_with_all_labels_stays_finite(name, label, problem):
    method = built(name, problem)
    x, y = whole_batch(problem)
    for _ in range(5):
        losses = method.step(x[:1], torch.full_like(y[:1], label))
        assert all(torch.isfinite(loss) for loss in losses.values())
    assert all(torch.isfinite(value).all() for value in cpu_weights(method.predictor).values())


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("stop_after", [1, 5, 7])
def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(name, stop_after, problem):
    whole, whole_position, config = trained(name, problem, 3)
    stopped, position, _ = trained(name, problem, 3, stop_after=stop_after)
    assert position.epoch * 4 + position.step == stop_after
    state = training_state(stopped, position)

    seed_everything(99)  # whatever happened in between
    resumed = methods.load(name).build(config, problem)
    position = restore(state, resumed)
    fit(
        resumed, problem, config,
        seed=3, position=position, observer=StepCounter(), should_stop=lambda: False,
    )  # fmt: skip
    assert_same_weights(whole, resumed)
    assert position.history == whole_position.history
    assert position.best_epoch == whole_position.best_epoch


@pytest.mark.parametrize("name", METHODS)
def test_exports_and_gives_the_same_answers(name, problem):
    method = built(name, problem)
    method.predictor.eval()
    x, _ = whole_batch(problem)
    model = export_predictor(method.predictor, problem.shape.n_features, problem.shape.n_labels)
    parity = check_parity(method.predictor, model, x.numpy())
    assert parity.largest_difference <= 1e-5
    assert parity.scores.shape == (32, problem.shape.n_labels)
    assert np.all((parity.scores >= 0) & (parity.scores <= 1))
