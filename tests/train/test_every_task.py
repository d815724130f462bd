"""The contract of every method that does more than labels of rows, task by task."""

from __future__ import annotations

import numpy as np
import pytest
import test_every_method as contract
import torch

from export.to_onnx import export_predictor
from export.verify import check_parity
from train import methods
from train.errors import ConfigError
from train.loop import Position, cpu_weights, fit, restore, seed_everything, training_state

SEGMENTING = [
    name
    for name in methods.available()
    if "segmentation" in getattr(methods.load(name), "TASKS", ())
]
OTHERS = [name for name in methods.available() if name not in SEGMENTING]
# Plain steps as large as masks need.
GRADIENT = {"inference_rule": "gradient", "inference_rate": 5.0}
# Energies of few pixels are large beside the cross-entropy, a mean.
LIGHT = {"seal": {"energy_weight": 1e-3, "loss_lr": 1e-4}}
cases = pytest.mark.parametrize(
    ("name", "variant"),
    [
        pytest.param(name, variant, id="-".join(filter(None, [name, kind])))
        for name in SEGMENTING
        for kind, variant in (methods.load(name).Config.KINDS or {"": {}}).items()
    ],
)


def options(name: str) -> dict[str, object]:
    return {} if name == "ce" else GRADIENT


def whole_view(problem):
    torch.manual_seed(0)
    return problem.views(*contract.whole_batch(problem))


def test_the_methods_of_seal_do_masks():
    assert SEGMENTING == ["ce", "dvn", "seal"]


@pytest.mark.parametrize("name", OTHERS)
def test_others_refuse_masks_in_one_sentence(name):
    with pytest.raises(ConfigError, match=f"{name} does not do segmentation: use ce, dvn, seal"):
        methods.check_task(name, "segmentation")


@cases
def test_scores_have_one_column_a_pixel_of_images_and_of_crops(name, variant, image_problem):
    config = contract.small_config(name, variant)
    predictor = methods.load(name).predictor(config, image_problem.shape).eval()
    x, _ = contract.whole_batch(image_problem)
    assert predictor(x[:2]).shape == (2, 64)
    assert predictor(whole_view(image_problem)[0][:2]).shape == (2, 16)


@cases
def test_a_batch_is_learned(name, variant, image_problem):
    method = contract.built(
        name, {**variant, **options(name)}, image_problem, lr=1e-3, **LIGHT.get(name, {})
    )
    x, y = whole_view(image_problem)
    first = method.step(x, y)
    for _ in range(40):
        losses = method.step(x, y)
    key = "cross_entropy" if "cross_entropy" in losses else next(iter(losses))
    assert losses[key] < first[key]


@cases
def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(name, variant, image_problem):
    variant = {**variant, **options(name)}
    whole, _, config = contract.trained(name, variant, image_problem, 1)
    stopped, position, _ = contract.trained(name, variant, image_problem, 1, stop_after=1)
    state = training_state(stopped, position)
    seed_everything(99)
    resumed = methods.load(name).build(config, image_problem)
    position = restore(state, resumed)
    fit(
        resumed, image_problem, config,
        seed=3, position=position, observer=contract.StepCounter(), should_stop=lambda: False,
    )  # fmt: skip
    contract.assert_same_weights(whole.predictor, resumed.predictor)
    assert isinstance(position, Position)


@pytest.mark.parametrize("name", ["ce", "dvn"])
def test_saved_weights_give_the_same_predictor(name, image_problem):
    config = contract.small_config(name, options(name))
    predictor = methods.load(name).predictor(config, image_problem.shape).eval()
    again = methods.load(name).predictor(config, image_problem.shape).eval()
    again.load_state_dict(cpu_weights(predictor))
    x, _ = contract.whole_batch(image_problem)
    assert torch.equal(again(x[:3]), predictor(x[:3]))


@pytest.mark.parametrize("name", ["ce", "seal"])
def test_exports_and_gives_the_same_answers(name, image_problem):
    seed_everything(3)
    predictor = (
        methods.load(name).predictor(contract.small_config(name, {}), image_problem.shape).eval()
    )
    x, _ = contract.whole_batch(image_problem)
    parity = check_parity(predictor, export_predictor(predictor, 192, 64), x[:5].numpy())
    assert parity.scores.shape == (5, 64)
    assert np.all((parity.scores >= 0) & (parity.scores <= 1))
