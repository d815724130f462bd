"""From a data set to a served prediction with the commands of the README."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from export.bundle import load_bundle
from labelwright_client import Client
from train.checkpoint import load_checkpoint
from train.config import config_from
from train.data.demo import read_demo
from train.methods import seal
from train.problem import Shape


def test_demo_from_training_to_the_client(run, serving, tmp_path):
    for method in ("ce", "seal"):
        trained = run("train", method, "--dataset", "demo", "--epochs", "2")
        assert f"python -m export runs/demo/{method}-0/model.pt" in trained.stdout
        exported = run("export", f"runs/demo/{method}-0/model.pt")
        assert "largest difference" in exported.stdout
    folder = tmp_path / "runs/demo/seal-0"
    assert {path.name for path in folder.iterdir()} == {
        "model.pt", "resume.pt", "metrics.json", "history.jsonl", "config.toml", "split.npz",
        "model.bundle",
    }  # fmt: skip
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["command"] == "python -m train seal --dataset demo --epochs 2"
    assert metrics["split"]["train"] == 1800
    with np.load(folder / "split.npz") as split:
        rows = np.concatenate([split["train"], split["validation"], split["test"]])
        assert len(split["train"]) == 1800
    assert np.array_equal(np.sort(rows), np.arange(3000))
    bundle = load_bundle(folder / "model.bundle")
    assert bundle.manifest.largest_difference <= 1e-5
    assert bundle.manifest.origin.command == metrics["command"]
    assert bundle.manifest.origin.scores["per_label"] == metrics["scores"]["per_label"]
    assert metrics["command"] in (folder / "model.bundle" / "README.md").read_text("utf-8")

    rows = read_demo().inputs[:5].toarray()
    predictor = load_checkpoint(folder / "model.pt").predictor()
    with torch.no_grad():
        best = predictor(torch.from_numpy(rows)).sigmoid().topk(3)
    with (
        serving("runs/demo/ce-0/model.bundle", "runs/demo/seal-0/model.bundle") as url,
        Client(url) as client,
    ):
        assert {model.name for model in client.models()} == {"demo-ce", "demo-seal"}
        predictions = client.predict(rows, top_k=3, model="demo-seal")
    labels = read_demo().labels
    for prediction, scores, numbers in zip(predictions, best.values, best.indices, strict=True):
        assert list(prediction.labels) == [labels[i] for i in numbers]
        np.testing.assert_allclose(prediction.scores, scores, atol=1e-5)


@pytest.mark.parametrize("kind", [[], ["--static"]], ids=["dynamic", "static"])
def test_model_pt_of_seal_rebuilds_its_loss_net(run, tmp_path, kind):
    run("train", "seal", "--dataset", "demo", "--epochs", "2", "--hidden", "8", *kind)
    checkpoint = load_checkpoint(tmp_path / "runs/demo/seal-0/model.pt")
    config = config_from(checkpoint.config, seal.Config, source="the checkpoint")
    shape = Shape.from_values(checkpoint.shape)
    untrained = seal.loss_net(config, shape)
    loss_net = seal.loss_net(config, shape)
    loss_net.load_state_dict(checkpoint.teacher)
    # Trained or not shows in the bias, which begins as zeros.
    assert not untrained.joint_bias.any()
    assert loss_net.joint_bias.all()


def test_the_same_command_twice_gives_the_same_weights(run, tmp_path):
    for out in ("one", "two"):
        run("train", "seal", "--dataset", "demo", "--epochs", "2", "--seed", "7", "--out", out)
    one, two = (load_checkpoint(tmp_path / out / "model.pt").weights for out in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_an_interrupted_run_leaves_a_model_and_goes_on_to_the_same_end(run, tmp_path):
    words = ["train", "seal", "--dataset", "demo", "--epochs", "4"]
    run(*words, "--out", "whole")
    training = subprocess.Popen(
        [sys.executable, "-m", *words, "--out", "cut"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "cut/history.jsonl").exists():  # the first epoch is done
        assert training.poll() is None
        time.sleep(0.005)
    training.send_signal(signal.SIGINT)
    output, _ = training.communicate(timeout=120)
    assert training.returncode == 130, output
    assert "--resume" in output
    interrupted = load_checkpoint(tmp_path / "cut/model.pt")
    assert not json.loads((tmp_path / "cut/metrics.json").read_text())["finished"]
    assert interrupted.predictor() is not None

    run(*words, "--out", "cut", "--resume")
    whole, cut = (load_checkpoint(tmp_path / out / "model.pt") for out in ("whole", "cut"))
    assert all(torch.equal(whole.weights[name], cut.weights[name]) for name in whole.weights)
    histories = [
        [
            {k: v for k, v in json.loads(line).items() if k != "seconds"}
            for line in (tmp_path / out / "history.jsonl").read_text().splitlines()
        ]
        for out in ("whole", "cut")
    ]
    assert histories[0] == histories[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_seal_beats_cross_entropy_on_demo(run, tmp_path, seed):
    scores = {}
    for method in ("ce", "seal"):
        run("train", method, "--dataset", "demo", "--seed", str(seed))
        metrics = (tmp_path / f"runs/demo/{method}-{seed}/metrics.json").read_text()
        scores[method] = json.loads(metrics)["scores"]["fixed"]["example_f1"]
    assert scores["seal"] > scores["ce"] + 0.03


def test_the_loss_net_of_seal_is_exported_for_comparison(run, tmp_path):
    run("train", "seal", "--dataset", "demo", "--epochs", "1", "--hidden", "8", "--out", "one")
    run("export", "one/model.pt", "--with-energy")
    table = run("serve", "bench", "one/model.bundle", "--rows", "64", "--rounds", "1").stdout
    assert "demo-seal, energy" in table
    run("train", "ce", "--dataset", "demo", "--epochs", "1", "--hidden", "8", "--out", "two")
    refused = run("export", "two/model.pt", "--with-energy", code=2).stderr
    assert "'ce' model holds no energy network" in refused
