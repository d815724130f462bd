"""The contract of every method that does labels of words."""

from __future__ import annotations

import pytest
import test_every_method as contract
import torch
from tiny_text import word_problem

from train import methods
from train.errors import ConfigError
from train.loop import (
    Position,
    cpu_weights,
    fit,
    restore,
    scores_of,
    seed_everything,
    training_state,
)
from train.marking import span_metrics

TAGGING = [
    name for name in methods.available() if "tagging" in getattr(methods.load(name), "TASKS", ())
]
OTHERS = [name for name in methods.available() if name not in TAGGING]
FAST = {"encoder_lr": 3e-3, "monitor": "span_f1"}
# Energies are sums over words, the cross-entropy a mean.
LIGHT = {"seal": {"energy_weight": 1e-3, "loss_lr": 1e-4}}
cases = pytest.mark.parametrize(
    ("name", "variant"),
    [
        pytest.param(name, variant, id="-".join(filter(None, [name, kind])))
        for name in TAGGING
        for kind, variant in (methods.load(name).Config.KINDS or {"": {}}).items()
    ],
)


@pytest.fixture
def problem():
    return word_problem()


def whole_view(problem):
    return problem.views(*contract.whole_batch(problem))


def test_the_methods_of_seal_do_words():
    assert TAGGING == ["ce", "dvn", "nce", "seal", "spen"]


@pytest.mark.parametrize("name", OTHERS)
def test_others_refuse_words_in_one_sentence(name):
    with pytest.raises(ConfigError, match=f"{name} does not do tagging: use ce, dvn, nce, seal"):
        methods.check_task(name, "tagging")


@cases
def test_scores_have_one_column_a_label_of_each_word(name, variant, problem):
    config = contract.small_config(name, variant)
    predictor = methods.load(name).predictor(config, problem.shape).eval()
    x, y = whole_view(problem)
    scores = predictor(x).sigmoid()
    assert scores.shape == y.shape == (24, x.word_pieces.shape[1] * problem.shape.n_labels)
    absent = (x.word_pieces == 0).repeat_interleave(problem.shape.n_labels, 1)
    assert absent.any()
    assert (scores[absent] <= 1e-6).all()


@cases
def test_a_batch_is_learned(name, variant, problem):
    method = contract.built(name, variant, problem, lr=1e-2, **FAST, **LIGHT.get(name, {}))
    x, y = whole_view(problem)
    first = method.step(x, y)
    for _ in range(20):
        losses = method.step(x, y)
    key = "cross_entropy" if "cross_entropy" in losses else next(iter(losses))
    assert losses[key] < first[key]


@pytest.mark.parametrize("name", ["ce", "seal"])
@pytest.mark.parametrize("tuning", ["adapter", "full"])
def test_spans_are_found(name, tuning):
    problem = word_problem(tuning=tuning)
    rate = {**FAST, "encoder_lr": 1e-2 if tuning == "adapter" else 3e-3}
    method = contract.built(name, {}, problem, lr=1e-2, **rate, **LIGHT.get(name, {}))
    x, y = whole_view(problem)
    for _ in range(150):
        method.step(x, y)
    (found,) = scores_of(method.predictor, (problem.train,), problem.device)
    assert span_metrics(found, problem.train.marks)["span_f1"] > 0.9


@cases
def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(name, variant, problem):
    variant = {**variant, **FAST}
    whole, _, config = contract.trained(name, variant, problem, 1)
    stopped, position, _ = contract.trained(name, variant, problem, 1, stop_after=1)
    state = training_state(stopped, position)
    seed_everything(99)
    resumed = methods.load(name).build(config, problem)
    position = restore(state, resumed)
    fit(
        resumed, problem, config,
        seed=3, position=position, observer=contract.StepCounter(), should_stop=lambda: False,
    )  # fmt: skip
    contract.assert_same_weights(whole.predictor, resumed.predictor)
    assert isinstance(position, Position)


@pytest.mark.parametrize("name", TAGGING)
def test_saved_weights_give_the_same_predictor(name, problem):
    config = contract.small_config(name, {})
    predictor = methods.load(name).predictor(config, problem.shape).eval()
    again = methods.load(name).predictor(config, problem.shape).eval()
    again.load_state_dict(cpu_weights(predictor))
    x, _ = contract.whole_batch(problem)
    assert torch.equal(again(x[:3]), predictor(x[:3]))


def test_a_row_is_scored_alike_beside_longer_ones(problem):
    seed_everything(3)
    predictor = methods.load("ce").predictor(contract.small_config("ce", {}), problem.shape).eval()
    rows = problem.train.x
    together = predictor(rows.take(torch.arange(len(rows))))
    for row in range(4):
        alone = predictor(rows.take(torch.tensor([row])))
        torch.testing.assert_close(together[row : row + 1, : alone.shape[1]], alone)
