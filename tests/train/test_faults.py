"""What training does when the loss, the disk or the memory fails: one sentence, nothing lost."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

import train.cli
from train import storage
from train.checkpoint import load_checkpoint
from train.feedforward import FeedForward

WORDS = ["ce", "--dataset", "demo", "--no-progress", "--out", "run", "--epochs", "4"]


@pytest.fixture
def sentence(tmp_path, monkeypatch, capsys):
    """Train in an empty folder; the one sentence on stderr, with exit code 2."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        assert train.cli.main([*WORDS, *words]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        return lines[0]

    return run


def failing_after(monkeypatch, steps: int, fail) -> None:
    """Let the steps of training go well so often, then call `fail` with what they give."""
    step, done = FeedForward.step, []

    def counted(self, x, y):
        done.append(1)
        losses = step(self, x, y)
        return losses if len(done) <= steps else fail(losses)

    monkeypatch.setattr(FeedForward, "step", counted)


def as_nan(losses):
    return {name: loss * torch.nan for name, loss in losses.items()}


def test_a_lost_loss_keeps_the_best_weights(sentence, monkeypatch):
    failing_after(monkeypatch, 60, as_nan)  # 57 batches an epoch
    said = sentence()
    assert "became nan in epoch 2" in said
    assert "run/model.pt holds the weights of epoch 1" in said
    assert load_checkpoint(Path("run/model.pt")).epoch == 1


def test_a_loss_lost_at_once_leaves_no_model(sentence, monkeypatch):
    failing_after(monkeypatch, 0, as_nan)
    assert "became nan in epoch 1" in sentence()
    assert not Path("run/model.pt").exists()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
    ids=["python", "gpu", "cpu"],
)
def test_too_little_memory_names_a_batch_size(sentence, monkeypatch, error):
    def fail(losses):
        raise error

    failing_after(monkeypatch, 3, fail)
    assert "try --batch-size 16" in sentence("--batch-size", "32")


def test_a_bug_is_no_lack_of_memory(monkeypatch, tmp_path):
    def fail(losses):
        raise RuntimeError("shapes do not match")

    monkeypatch.chdir(tmp_path)
    failing_after(monkeypatch, 3, fail)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        train.cli.main(WORDS)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_and_the_older_file_stays(tmp_path, monkeypatch):
    path = tmp_path / "values.pt"
    storage.save({"schema": storage.SCHEMA_VERSION, "value": 1}, path)

    def full(handle, mode):
        storage.os.close(handle)
        return Path("/dev/full").open(mode)

    monkeypatch.setattr(storage.os, "fdopen", full)
    with pytest.raises(OSError, match=r"values\.pt") as caught:
        storage.save({"schema": storage.SCHEMA_VERSION, "value": torch.zeros(100_000)}, path)
    assert caught.value.errno == errno.ENOSPC
    assert storage.load(path)["value"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["values.pt"]


def test_a_run_killed_before_its_first_epoch_is_resumed_from_its_beginning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*WORDS[:-1], "1"]
    assert train.cli.main(words) == 0
    whole = load_checkpoint(Path("run/model.pt"))
    for name in ("model.pt", "resume.pt", "metrics.json", "history.jsonl"):
        Path("run", name).unlink()
    assert train.cli.main([*words, "--resume"]) == 0
    resumed = load_checkpoint(Path("run/model.pt"))
    assert all(torch.equal(value, resumed.weights[name]) for name, value in whole.weights.items())
