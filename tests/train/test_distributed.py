"""Several processes, as torchrun starts them: they train what one process trains."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from some_ranks import cases

from train.checkpoint import load_checkpoint
from train.storage import load

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("some_ranks.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
ALONE = [sys.executable]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
# Sums of float32 in another order; the steps of Adam keep such a difference small.
TOLERANCE = 1e-5


def run(words: list[str], folder: Path, seconds: int = 250) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True,
        timeout=seconds, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What one process and two ranks make of every method."""
    folder = tmp_path_factory.mktemp("ranks")
    for name, launcher in {"one": ALONE, "two": [*TORCHRUN, "2"]}.items():
        done = run([*launcher, str(PROGRAM), name], folder)
        assert done.returncode == 0, done.stderr[-3000:]
    return [load(folder / name)["found"] for name in ("one", "two")]


@pytest.mark.parametrize("case", cases())
def test_two_ranks_train_what_one_process_trains(case, outcomes):
    one, two = (outcome[case] for outcome in outcomes)
    assert len(one["history"]) == len(two["history"]) >= 2
    for before, after in zip(one["history"], two["history"], strict=True):
        del before["seconds"], after["seconds"]
        assert after == pytest.approx(before, rel=TOLERANCE, abs=TOLERANCE)
    assert one["weights"].keys() == two["weights"].keys()
    for name, value in one["weights"].items():
        torch.testing.assert_close(two["weights"][name], value, rtol=TOLERANCE, atol=TOLERANCE)


def test_a_rank_holds_its_share_of_a_sharded_table_and_of_its_moments(outcomes):
    one, two = (outcome["sampled sharded softmax"]["held"] for outcome in outcomes)
    assert one == [[6, 6, 6]]
    assert two == [[3, 3, 3], [3, 3, 3]]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(201, 6)).astype(np.float32)
    y = (x @ rng.normal(size=(6, 5)) > 0.5).astype(np.uint8)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(path, x=x, y=y)
    return path


def training(data: Path, *words: str) -> list[str]:
    # 120 training rows: the last batch of 1 goes to the batch before it where there are two ranks.
    settings = ["--batch-size", "17", "--patience", "100000", "--hidden", "16", "--no-progress"]
    return ["-m", "train", "ce", "--dataset", str(data), "--out", "run", *settings, *words]


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def begun(words: list[str], folder: Path) -> subprocess.Popen[str]:
    """Start a run and wait until its first epoch is saved."""
    process = subprocess.Popen(
        words, cwd=folder, env=ENVIRONMENT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_for(folder / "run" / "resume.pt", process)
    return process


def kill_rank(rank: int, launcher: subprocess.Popen[str]) -> None:
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    (pid,) = (
        child for child in children
        if f"\0RANK={rank}\0" in Path(f"/proc/{child}/environ").read_text()
    )  # fmt: skip
    os.kill(int(pid), signal.SIGKILL)


def epochs(folder: Path) -> list[int]:
    lines = (folder / "run" / "history.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines]


def test_a_stopped_run_goes_on_to_the_weights_of_one_that_was_not(data, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
    first = begun([*TORCHRUN, "2", *training(data, "--epochs", "100000", "--dropout", "0.3")], cut)
    first.send_signal(signal.SIGTERM)
    out, err = first.communicate(timeout=60)
    assert first.returncode != 0
    assert "interrupted; run/model.pt holds the best so far" in out, err
    assert "torchrun --nproc-per-node 2 -m train ce" in out
    words = training(data, "--epochs", str(epochs(cut)[-1] + 2), "--dropout", "0.3")
    done = run([*TORCHRUN, "2", *words, "--resume"], cut)
    assert done.returncode == 0, done.stderr
    assert run([*TORCHRUN, "2", *words], whole).returncode == 0
    assert epochs(cut) == epochs(whole)
    one, other = (load_checkpoint(folder / "run" / "model.pt") for folder in (whole, cut))
    for name, value in one.weights.items():
        assert torch.equal(value, other.weights[name]), name
    assert (one.epoch, one.scores) == (other.epoch, other.scores)


def test_without_one_of_its_ranks_a_run_ends_and_goes_on_alone(data, tmp_path):
    words = training(data, "--epochs", "100000")
    process = begun([*TORCHRUN, "2", *words], tmp_path)
    kill_rank(1, process)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert err.count("error: rank 1 of 2 was lost (") == 1, err
    assert err.count("); run keeps what was saved. Go on with:\n") == 1, err
    assert f"torchrun --nproc-per-node 2 {' '.join(words[:3])}" in err
    assert "--resume\n" in err
    saved = epochs(tmp_path)[-1]
    alone = run([*ALONE, *training(data, "--epochs", str(saved + 2), "--resume")], tmp_path)
    assert alone.returncode == 0, alone.stderr
    assert epochs(tmp_path) == list(range(1, saved + 3))


@pytest.mark.slow
def test_torchrun_begins_lost_ranks_anew_and_they_go_on(data, tmp_path):
    words = training(data, "--epochs", "200", "--overwrite")
    process = begun([*TORCHRUN, "2", "--max-restarts", "1", *words], tmp_path)
    kill_rank(0, process)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert err.count("error: rank 0 of 2 was lost") == 1, err
    assert "best epoch" in out
    assert epochs(tmp_path) == list(range(1, 201))


def test_a_method_fitted_in_one_go_is_refused_once(data, tmp_path):
    done = run([*TORCHRUN, "2", "-m", "train", "br", "--dataset", str(data)], tmp_path)
    assert done.returncode != 0
    assert done.stderr.count("error: br is fitted in one go, in one process") == 1, done.stderr
    assert "(pid" in done.stderr  # torchrun tells of both
    assert "exitcode  : 2" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_sharded_run_goes_on_in_any_number_of_ranks_sharded_or_not(data, tmp_path):
    """To the same bits: 5 labels do not divide evenly by 2 or 3."""
    words = ["-m", "train", "sampled", "--dataset", str(data), "--batch-size", "17"]
    words += ["--hidden", "8", "--no-progress", "--out"]
    sharded = ["--shard-labels", "--epochs"]
    done = run([*TORCHRUN, "2", *words, "cut", *sharded, "1"], tmp_path)
    assert done.returncode == 0, done.stderr
    shutil.copytree(tmp_path / "cut", tmp_path / "other")
    for out, options in {"cut": sharded, "other": ["--epochs"]}.items():
        done = run([*TORCHRUN, "3", *words, out, *options, "2", "--resume"], tmp_path)
        assert done.returncode == 0, done.stderr
    one, other = (load(tmp_path / out / "resume.pt")["method"] for out in ("cut", "other"))
    tables = [
        (state["predictor"]["labels"], *state["optimizer"]["moments"]["labels"])
        for state in (one, other)
    ]
    for table, same in zip(*tables, strict=True):
        assert len(table) == 5
        assert torch.equal(table, same)
    one, other = (
        json.loads((tmp_path / out / "metrics.json").read_text()) for out in ("cut", "other")
    )
    assert one["scores"]["fixed"] == pytest.approx(other["scores"]["fixed"])
    alone = run([*ALONE, *words, "cut", *sharded, "3", "--resume"], tmp_path)
    assert alone.returncode == 0, alone.stderr
    exported = run([*ALONE, "-m", "export", "cut/model.pt"], tmp_path)
    assert exported.returncode == 0, exported.stderr
