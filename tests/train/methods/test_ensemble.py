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
from train.checkpoint import load_checkpoint
from train.methods.ensemble import MeanProbability

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
        (["ce-0", "seal"], [], "train seal first, then name its run folder"),
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
