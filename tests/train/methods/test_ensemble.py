"""Ensembles: what models trained before say on average, as one model that needs no other file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import train.cli
import train.commands
from train.checkpoint import load_checkpoint
from train.methods.ensemble import MeanProbability
from train.planned import Outcome

ROWS = 90


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    """Two seeds of ce and one of cgmvae on a small data set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABELWRIGHT_REPORT", "off")
    rng = np.random.default_rng(1)
    x = rng.normal(3, 2, size=(ROWS, 5)).astype(np.float32)
    np.savez("my.npz", x=x, y=(x @ rng.normal(size=(5, 4)) > 3).astype(np.uint8))
    for method, seed in (("ce", 0), ("ce", 1), ("cgmvae", 0)):
        assert run(method, "--seed", str(seed), "--epochs", "2", "--out", f"{method}-{seed}") == 0
    return tmp_path


def run(method: str, *words: str) -> int:
    return train.cli.main([method, "--dataset", "my.npz", "--no-progress", *words])


def probabilities(path: str, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        logits = load_checkpoint(Path(path)).predictor()(torch.from_numpy(x))
    return logits.double().sigmoid().numpy()


def test_it_says_the_mean_of_its_members_and_stands_alone(runs):
    assert run("ensemble", "--members", "ce-0", "ce-1/model.pt", "cgmvae-0", "--out", "all") == 0
    x = np.load("my.npz")["x"]
    members = [probabilities(f"{name}/model.pt", x) for name in ("ce-0", "ce-1", "cgmvae-0")]
    for name in ("ce-0", "ce-1", "cgmvae-0"):
        shutil.rmtree(name)
    np.testing.assert_allclose(probabilities("all/model.pt", x), np.mean(members, 0), atol=1e-6)


def test_methods_that_are_fitted_in_one_go_are_fitted_here(runs):
    assert run("br", "--out", "br") == 0
    assert run("ensemble", "--members", "br", "cgmvae-0", "--out", "named") == 0
    shutil.move("br", "br-run")  # what is a folder is taken as one
    assert run("ensemble", "--members", "br-run", "cgmvae-0", "--out", "kept") == 0
    assert run("ensemble", "--members", "br", "cgmvae-0", "--out", "fitted") == 0
    x = np.load("my.npz")["x"]
    for name in ("named", "fitted"):
        theirs = probabilities("kept/model.pt", x)
        np.testing.assert_allclose(probabilities(f"{name}/model.pt", x), theirs, atol=1e-6)


def test_thresholds_and_scores_are_its_own(runs):
    assert run("ensemble", "--members", "ce-0", "ce-1", "--out", "all") == 0
    metrics = json.loads(Path("all/metrics.json").read_text())
    assert metrics["finished"]
    checkpoint = load_checkpoint(Path("all/model.pt"))
    found = probabilities("all/model.pt", checkpoint.probe.numpy()) >= 0.5
    true = np.zeros_like(found)
    for row, labels in enumerate(checkpoint.probe_labels):
        true[row, labels] = True
    accuracy = (found == true).mean()
    assert metrics["scores"]["fixed"]["hamming_accuracy"] == pytest.approx(accuracy)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_the_mean_is_exact_near_0_and_1(scale):
    logits = torch.randn(3, 4, 5, dtype=torch.float64) * scale

    class Fixed(nn.Module):
        def __init__(self, answer):
            super().__init__()
            self.answer = answer

        def forward(self, x):
            return self.answer.float()

    found = MeanProbability([Fixed(answer) for answer in logits])(torch.zeros(4, 1))
    mean, rest = logits.sigmoid().mean(0), (-logits).sigmoid().mean(0)
    torch.testing.assert_close(found.double(), mean.log() - rest.log(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("members", "options", "sentence"),
    [
        (["ce-0"], [], "--members must name two models or more, got 1"),
        (["ce-0", "nothing"], [], "there is no run folder, model.pt or method 'nothing'"),
        (["ce-0", "seal:margins"], [], "there is no kind 'margins' of method seal"),
        (["ce-0", "ce@no.toml"], [], "no.toml"),
        (["ce-0", "dvn"], [], "dvn predicts by gradient descent, not by one pass"),
        (["ce-0", "ce-1"], ["--split-seed", "1"], "was trained on other rows"),
        (["ce-0", "ce-1"], ["--scaling", "none"], "was trained on other rows"),
        (["ce-0", "my.npz"], [], "my.npz"),
        (["ce-0", "ce-1/resume.pt"], [], "ce-1/resume.pt is not a model.pt"),
    ],
)
def test_other_members_are_refused_in_one_sentence(members, options, sentence, runs, capsys):
    assert run("ensemble", "--members", *members, *options, "--out", "all") == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1
    assert not Path("all/model.pt").exists()


def test_energies_and_ensembles_are_no_members(runs, capsys):
    assert run("dvn", "--epochs", "1", "--out", "dvn") == 0
    assert run("ensemble", "--members", "ce-0", "dvn", "--out", "all") == 2
    assert "predicts by gradient descent" in capsys.readouterr().err
    assert run("ensemble", "--members", "ce-0", "ce-1", "--out", "two") == 0
    assert run("ensemble", "--members", "ce-0", "two", "--out", "all") == 2
    assert "an ensemble cannot be a member" in capsys.readouterr().err


def write_preset(lr: float) -> None:
    Path("few.toml").write_text(f"epochs = 2\nlr = {lr}\n", encoding="utf-8")


def test_members_named_by_their_method_are_trained_first(runs, capsys):
    write_preset(0.01)
    named = "ensemble", "--members", "ce@few.toml", "mlknn", "ce@few.toml", "--seed", "1"
    assert run(*named, "--out", "all") == 0
    assert "ce, preset few.toml, seed 3:" in capsys.readouterr().out
    x = np.load("my.npz")["x"]
    assert run("mlknn", "--out", "mlknn-run") == 0
    members = ["all/members/ce-2", "all/members/ce-3", "mlknn-run"]
    expected = np.mean([probabilities(f"{name}/model.pt", x) for name in members], 0)
    np.testing.assert_allclose(probabilities("all/model.pt", x), expected, atol=1e-6)
    metrics = json.loads(Path("all/metrics.json").read_text())
    assert metrics["config"]["members"] == ["ce@few.toml", "mlknn", "ce@few.toml"]
    trained = [json.loads(Path(name, "metrics.json").read_text()) for name in members[:2]]
    assert metrics["seconds"] >= sum(each["seconds"] for each in trained)
    assert all(each["epochs"] == 2 for each in trained)


def test_members_see_the_rows_of_the_ensemble(runs):
    write_preset(0.01)
    same = "--scaling", "none", "--split", "50/20/30", "--split-seed", "3", "--fraction", "0.5"
    assert run("ensemble", "--members", "ce@few.toml", "br", *same, "--out", "all") == 0
    ours, theirs = (
        json.loads(Path(name, "metrics.json").read_text()) for name in ("all", "all/members/ce-0")
    )
    assert theirs["split"] == ours["split"]
    assert theirs["config"]["scaling"] == "none"


def test_the_same_command_goes_on_where_it_was_interrupted(runs, monkeypatch, capsys):
    write_preset(0.01)
    named = "ensemble", "--members", "ce@few.toml", "ce@few.toml", "--out", "all"
    trained = train.commands.train_planned

    def interrupted_at_the_second(member, display):
        return trained(member, display) if member.options.seed == 0 else Outcome("interrupted")

    with monkeypatch.context() as patched:
        patched.setattr(train.commands, "train_planned", interrupted_at_the_second)
        assert run(*named) == 130
    assert "go on with:" in capsys.readouterr().out
    assert not Path("all/model.pt").exists()
    first = json.loads(Path("all/members/ce-0/metrics.json").read_text())
    assert run(*named) == 0
    again = json.loads(Path("all/members/ce-0/metrics.json").read_text())
    assert again["seconds"] == first["seconds"]
    assert load_checkpoint(Path("all/model.pt")).method == "ensemble"


def test_other_settings_need_overwrite(runs, capsys):
    write_preset(0.01)
    named = "ensemble", "--members", "ce@few.toml", "ce@few.toml", "--out", "all"
    assert run(*named) == 0
    write_preset(0.02)
    Path("all/model.pt").unlink()
    for name in ("metrics.json", "split.npz", "config.toml"):
        Path("all", name).unlink()
    assert run(*named) == 2
    assert "has --lr 0.01, not 0.02" in capsys.readouterr().err
    assert run(*named, "--overwrite") == 0
    assert "lr = 0.02" in Path("all/members/ce-0/config.toml").read_text()
