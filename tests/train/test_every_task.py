"""The contract of every method that does more than labels of rows, task by task."""

from __future__ import annotations

import numpy as np
import pytest
import test_every_method as contract
import torch
from tiny_text import word_problem

from export.feeds import GRAPH_INPUTS
from export.to_onnx import export_predictor
from export.verify import check_parity
from train import methods
from train.checkpoint import FromWords
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

TASKS = ("segmentation", "tagging")
ABLE = {
    task: [name for name in methods.available() if task in getattr(methods.load(name), "TASKS", ())]
    for task in TASKS
}
# Plain steps as large as masks need.
GRADIENT = {"inference_rule": "gradient", "inference_rate": 5.0}
OPTIONS = {
    "segmentation": {"dvn": GRADIENT, "seal": GRADIENT},
    "tagging": {name: {"encoder_lr": 3e-3, "monitor": "span_f1"} for name in ABLE["tagging"]},
}
# Energies of few pixels, and of sums over words, are large beside the cross-entropy, a mean.
LIGHT = {"seal": {"energy_weight": 1e-3, "loss_lr": 1e-4}}
RATES = {"segmentation": 1e-3, "tagging": 1e-2}
cases = pytest.mark.parametrize(
    ("task", "name", "variant"),
    [
        pytest.param(task, name, variant, id="-".join(filter(None, [task, name, kind])))
        for task in TASKS
        for name in ABLE[task]
        for kind, variant in (methods.load(name).Config.KINDS or {"": {}}).items()
    ],
)
per_task = pytest.mark.parametrize("task", TASKS)


@pytest.fixture
def problem(task, request):
    return word_problem() if task == "tagging" else request.getfixturevalue("image_problem")


def options(task: str, name: str) -> dict[str, object]:
    return OPTIONS[task].get(name, {})


def whole_view(problem):
    torch.manual_seed(0)
    return problem.views(*contract.whole_batch(problem))


def untrained(name, variant, problem):
    config = contract.small_config(name, variant)
    return methods.load(name).predictor(config, problem.shape).eval()


def test_the_methods_of_seal_do_them():
    assert ABLE == {
        "segmentation": ["ce", "dvn", "seal"],
        "tagging": ["ce", "dvn", "nce", "seal", "spen"],
    }


@pytest.mark.parametrize(
    ("task", "name"),
    [(task, name) for task in TASKS for name in methods.available() if name not in ABLE[task]],
)
def test_others_refuse_them_in_one_sentence(task, name):
    able = ", ".join(ABLE[task])
    with pytest.raises(ConfigError, match=f"{name} does not do {task}: use {able}"):
        methods.check_task(name, task)


@cases
def test_scores_have_one_column_a_label(task, name, variant, problem):
    predictor = untrained(name, variant, problem)
    x, y = whole_view(problem)
    assert predictor(x[:2]).shape == (2, y.shape[1])
    if task == "segmentation":  # crops in training, and whole images
        images, _ = contract.whole_batch(problem)
        assert y.shape[1] == 16
        assert predictor(images[:2]).shape == (2, 64)


@pytest.mark.parametrize("name", ABLE["tagging"])
@pytest.mark.parametrize("task", ["tagging"])
def test_absent_words_bear_no_label(task, name, problem):
    x, y = whole_view(problem)
    absent = (x.word_pieces == 0).repeat_interleave(problem.shape.n_labels, 1)
    assert absent.any()
    assert not y[absent].any()
    assert (untrained(name, {}, problem)(x).sigmoid()[absent] <= 2e-6).all()


@pytest.mark.parametrize("task", ["tagging"])
def test_a_row_of_words_is_scored_alike_beside_longer_ones(task, problem):
    seed_everything(3)
    predictor, rows = untrained("ce", {}, problem), problem.train.x
    together = predictor(rows.take(torch.arange(len(rows))))
    for row in range(4):
        alone = predictor(rows.take(torch.tensor([row])))
        torch.testing.assert_close(together[row : row + 1, : alone.shape[1]], alone)


@cases
def test_a_batch_is_learned(task, name, variant, problem):
    settings = {**variant, **options(task, name)}
    method = contract.built(name, settings, problem, lr=RATES[task], **LIGHT.get(name, {}))
    x, y = whole_view(problem)
    first = method.step(x, y)
    for _ in range(40 if task == "segmentation" else 20):
        losses = method.step(x, y)
    key = "cross_entropy" if "cross_entropy" in losses else next(iter(losses))
    assert losses[key] < first[key]


@pytest.mark.parametrize("name", ["ce", "seal"])
@pytest.mark.parametrize(("tuning", "rate", "least"), [("adapter", 1e-2, 0.8), ("full", 3e-3, 0.9)])
def test_spans_are_found(name, tuning, rate, least):
    problem = word_problem(tuning=tuning)
    settings = {"lr": 1e-2, "encoder_lr": rate, "monitor": "span_f1", **LIGHT.get(name, {})}
    method = contract.built(name, {}, problem, **settings)
    x, y = whole_view(problem)
    for _ in range(150):
        method.step(x, y)
    (found,) = scores_of(method.predictor, (problem.train,), problem.device)
    assert span_metrics(found.rows(), problem.train.marks)["span_f1"] > least


@cases
def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(task, name, variant, problem):
    variant = {**variant, **options(task, name)}
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


@pytest.mark.parametrize("name", ["ce", "dvn"])
@per_task
def test_saved_weights_give_the_same_predictor(task, name, problem):
    predictor, again = (untrained(name, options(task, name), problem) for _ in range(2))
    again.load_state_dict(cpu_weights(predictor))
    x, _ = contract.whole_batch(problem)
    assert torch.equal(again(x[:3]), predictor(x[:3]))


@pytest.mark.parametrize("name", ["ce", "seal"])
@per_task
def test_exports_and_gives_the_same_answers(task, name, problem):
    seed_everything(3)
    predictor = untrained(name, {}, problem)
    x, _ = contract.whole_batch(problem)
    if task == "tagging":
        n_labels, predictor = problem.shape.n_labels, FromWords(predictor).eval()
        inputs = [getattr(x, part)[:5].numpy() for part in GRAPH_INPUTS["words"]]
        model = export_predictor(predictor, 32, n_labels, kind="words")
        feed = dict(zip(GRAPH_INPUTS["words"], inputs, strict=True))
        parity = check_parity(predictor, model, inputs, feed=feed)
        columns = x.word_pieces.shape[1] * n_labels
    else:
        parity, columns = (
            check_parity(predictor, export_predictor(predictor, 192, 64), x[:5].numpy()),
            64,
        )
    assert parity.scores.shape == (5, columns)
    assert np.all((parity.scores >= 0) & (parity.scores <= 1))
