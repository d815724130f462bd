"""`--plus` and SEAL's `--base`: the loss of one method as part of another."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

from train import losses, methods
from train.cli import main
from train.errors import ConfigError
from train.feedforward import added_names
from train.loop import seed_everything
from train.methods import ce, seal, twoway

WITH_A_LOSS = [name for name in methods.available() if hasattr(methods.load(name), "loss")]


def step(module, problem, **options):
    seed_everything(3)
    method = module.build(module.Config(hidden=(16,), **options), problem)
    rows = torch.arange(len(problem.train))
    return method.step(problem.train.x.take(rows), problem.train.y.take(rows))


def test_every_method_that_is_a_loss_on_the_plain_network_offers_it():
    assert {"ce", "focal", "asl", "twoway", "softmax", "warp", "rml"} <= set(WITH_A_LOSS)
    plus = [
        name
        for name in methods.available()
        if "plus" in {field.name for field in dataclasses.fields(methods.load(name).Config)}
    ]
    assert plus == WITH_A_LOSS


@pytest.mark.parametrize("name", WITH_A_LOSS)
def test_any_of_them_can_be_added_to_any(name, dense_problem):
    alone = step(ce, dense_problem)["cross_entropy"]
    both = step(ce, dense_problem, plus=f"{name}:0.25")
    added = both[f"plus_{name}"]
    torch.testing.assert_close(both["cross_entropy"], alone)
    torch.testing.assert_close(both["objective"], alone + added)
    assert added > 0
    twice = step(ce, dense_problem, plus=f"{name}:0.5")[f"plus_{name}"]
    torch.testing.assert_close(twice, 2 * added, rtol=1e-4, atol=1e-6)


def test_several_can_be_added(dense_problem):
    parts = step(twoway, dense_problem, plus="ce:0.5, asl:2")
    assert list(parts) == ["objective", "two_way", "plus_ce", "plus_asl"]
    torch.testing.assert_close(parts["objective"], sum(list(parts.values())[1:]))


@pytest.mark.parametrize("text", ["ce", "ce:", "ce:x", ":1", "ce:0", "ce:-1", "ce:inf", "ce:1,,"])
def test_what_is_no_list_of_weights_is_told(text):
    with pytest.raises(ConfigError, match="--plus must be NAME:WEIGHT"):
        added_names(text)


def test_an_unknown_loss_is_told(capsys, tmp_path, dense_problem):
    words = ["ce", "--dataset", "demo", "--out", str(tmp_path), "--plus", "twowya:1"]
    assert main(words) == 2
    assert "--plus: 'twowya' is not the loss of a method" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="--base: 'mlknn' is not the loss of a method"):
        step(seal, dense_problem, base="mlknn")


@pytest.mark.parametrize("loss", ["nce", "margin"])
def test_the_base_of_seal_is_the_loss_of_a_method(loss, dense_problem):
    plain = step(seal, dense_problem, loss=loss, loss_steps=1, energy_weight=0.0)
    other = step(seal, dense_problem, loss=loss, loss_steps=1, energy_weight=0.0, base="focal")
    assert "cross_entropy" in plain
    assert "cross_entropy" not in other
    assert other["focal"] < plain["cross_entropy"]
    if loss == "nce":
        torch.testing.assert_close(other["objective"], other["focal"])


def test_the_base_of_seal_sees_the_logits_of_the_task_net(dense_problem):
    seed_everything(3)
    method = seal.build(seal.Config(hidden=(16,), dropout=0.0, base="asl"), dense_problem)
    rows = torch.arange(len(dense_problem.train))
    x, y = dense_problem.train.x.take(rows), dense_problem.train.y.take(rows)
    expected = losses.asymmetric(method.predictor(x), y)
    torch.testing.assert_close(method.step(x, y)["asl"], expected.detach())


def test_the_base_of_seal_takes_settings(dense_problem):
    settings = {"loss_steps": 1, "energy_weight": 0.0}
    plain = step(seal, dense_problem, **settings)["cross_entropy"]
    same = step(
        seal, dense_problem, base="asl:positive_gamma=0,negative_gamma=0,shift=0", **settings
    )
    torch.testing.assert_close(same["asl"], plain)
    other = step(seal, dense_problem, base="asl:shift=0.3", **settings)
    assert other["asl"] < step(seal, dense_problem, base="asl", **settings)["asl"]


@pytest.mark.parametrize(
    ("base", "sentence"),
    [
        ("asl:0.5", "--base must be NAME or NAME:FIELD=VALUE"),
        ("asl:shift=", "--base must be NAME or NAME:FIELD=VALUE"),
        ("asl:gama=1", "--base asl has an unknown key 'gama'"),
        ("asl:shift=no", "--base must be NAME or NAME:FIELD=VALUE"),
        ('asl:shift="x"', "--base asl: shift must be float, got 'x'"),
        ("asl:shift=2", "--shift must be"),
    ],
)
def test_settings_of_a_base_that_cannot_be_are_told(base, sentence, dense_problem):
    with pytest.raises(ConfigError, match=re.escape(sentence)) as told:
        step(seal, dense_problem, base=base)
    assert "\n" not in str(told.value)
