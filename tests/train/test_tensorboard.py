"""`--tensorboard`: the events of a run are its history, once, also after it was resumed."""

from __future__ import annotations

import json
import sys

import pytest

from train.cli import main

WORDS = ["ce", "--dataset", "demo", "--hidden", "20", "--no-progress", "--tensorboard"]


def read_back(folder):
    """Every scalar of the folder, by tag, as TensorBoard itself reads it."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulators.EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def history(run):
    lines = (run / "history.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_events_are_the_history_of_the_run_also_when_resumed(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    run = tmp_path / "run"
    assert main([*WORDS, "--out", str(run), "--epochs", "2"]) == 0
    assert main([*WORDS, "--out", str(run), "--epochs", "4", "--resume"]) == 0
    scalars = read_back(run / "tensorboard")
    assert set(scalars) == {"loss/cross_entropy", "validation/example_f1", "time/seconds"}
    epochs = history(run)
    assert [step for step, _ in scalars["loss/cross_entropy"]] == [1, 2, 3, 4]
    losses = [value for _, value in scalars["loss/cross_entropy"]]
    assert losses == pytest.approx([epoch["cross_entropy"] for epoch in epochs])
    scores = [value for _, value in scalars["validation/example_f1"]]
    assert scores == pytest.approx([epoch["validation_example_f1"] for epoch in epochs])


def test_a_missing_package_is_told_before_any_training(tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert main([*WORDS, "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == (
        'error: --tensorboard needs tensorboard: pip install "labelwright[tensorboard]"\n'
    )
    assert not (tmp_path / "run").exists()


def test_a_method_without_epochs_has_nothing_to_show(tmp_path, capsys):
    words = ["br", "--dataset", "demo", "--tensorboard", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert "br is fitted in one go, so it has no epochs to show" in capsys.readouterr().err


def test_a_comparison_gives_events_to_methods_that_have_epochs(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    words = ["--dataset", "demo", "--methods", "ce,br", "--seeds", "1", "--epochs", "1"]
    assert main(["compare", *words, "--out", str(tmp_path), "--tensorboard", "--no-progress"]) == 0
    assert [path.parent.parent.name for path in tmp_path.rglob("events.out.*")] == ["ce-0"]
