"""`python -m train fill`: rows that the plan names and the results lack are trained and added."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import train.cli
from train.evidence import read_results
from train.filling import read_plan, wanted_rows

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "train" / "results"
PLAN = """\
[[tables]]
dataset = "demo"
split = "60/20/20"
methods = ["ce", "seal:margin"]
options = ["--epochs", "2"]
seeds = 2

[[tables]]
dataset = "demo"
split = "60/20/20"
methods = ["mlknn"]
fraction = 0.5
seeds = 1
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with a plan and no results."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABELWRIGHT_REPORT", "off")
    Path("train/results").mkdir(parents=True)
    Path("train/results/plan.toml").write_text(PLAN)
    return tmp_path


def fill(*words: str) -> int:
    return train.cli.main(["fill", *words])


def rows() -> list[tuple[str, str, int, float]]:
    records = read_results(Path("train/results/demo.csv"))
    return [(record.method, record.changed, record.seed, record.fraction) for record in records]


def test_missing_rows_are_trained_first_seeds_first_and_only_once(capsys):
    assert fill() == 0
    told = capsys.readouterr().out
    assert "5 of 5 rows are missing" in told
    done = [line.split("] ")[1].split(":")[0] for line in told.splitlines() if line[:1] == "["]
    assert done == ["ce, seed 0", "seal", "mlknn, seed 0, 0.5 of the rows", "ce, seed 1", "seal"]
    assert rows() == [
        ("mlknn", "", 0, 0.5),
        ("ce", "epochs=2", 0, 1), ("ce", "epochs=2", 1, 1),
        ("seal:margin", "epochs=2", 0, 1), ("seal:margin", "epochs=2", 1, 1),
    ]  # fmt: skip
    assert fill() == 0
    assert "0 of 5 rows are missing" in capsys.readouterr().out


def test_a_row_is_repeated_by_its_command():
    assert fill() == 0
    with Path("train/results/demo.csv").open() as file:
        row = next(r for r in csv.DictReader(file) if r["method"] == "seal:margin")
    words = row["command"].split()[3:]
    assert train.cli.main([*words, "--out", "again", "--no-progress"]) == 0
    assert train.cli.main(["results", "again", "--into", str(Path("again"))]) == 0
    with Path("again/demo.csv").open() as file:
        again = next(csv.DictReader(file))
    differing = {name for name in row if row[name] != again[name]}
    assert differing <= {"seconds", "commit"}


def test_list_says_what_is_missing_and_trains_nothing(capsys):
    assert fill("--list") == 0
    told = capsys.readouterr().out
    assert "demo 60/20/20 --epochs 2" in told
    assert "4 unknown" in told
    assert not Path("runs").exists()
    assert fill() == 0
    Path("train/results/plan.toml").write_text(PLAN.replace("seeds = 2", "seeds = 4"))
    capsys.readouterr()
    assert fill("--list") == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "--epochs" in line)
    assert line.split()[-3:-1] == ["8", "4"]  # the time is known from the first seeds
    assert "unknown" not in line


def test_an_interrupted_run_goes_on_with_the_same_command():
    plan = Path("train/results/plan.toml")
    first_table, _, _ = PLAN.partition("\n\n")
    plan.write_text(first_table.replace('"2"', '"4000"').replace('"ce", ', ""))
    command = [sys.executable, "-m", "train", "fill", "--jobs", "2", "--no-progress"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    histories = [
        Path(f"runs/fill/demo-60-20-20-epochs-4000/seal-margin-{s}/history.jsonl") for s in (0, 1)
    ]
    while not all(history.is_file() and history.read_text() for history in histories):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on" in told
    assert not Path("train/results/demo.csv").exists()
    epochs = [len(history.read_text().splitlines()) for history in histories]
    # Early stopping ends it before long.
    assert subprocess.run(command, env=environment, check=False, timeout=600).returncode == 0
    after = [len(history.read_text().splitlines()) for history in histories]
    assert all(late > early for late, early in zip(after, epochs, strict=True))
    assert [row[2] for row in rows()] == [0, 1]


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ("[[tables", "is no plan of results"),
        ("x = 1", "is no plan of results: 'tables'"),
        ('[[tables]]\ndataset = "demo"', "is no plan of results"),
        (PLAN.replace("seeds = 2", 'seeds = "2"'), "seeds must be int"),
        (PLAN.replace('["mlknn"]', '"mlknn"'), "methods must be"),
        (PLAN.replace("seeds", "seedz"), "unknown key 'seedz'"),
        ("tables = 3", "is no plan of results"),
        (PLAN.replace("seal:margin", "seal:marge"), "there is no kind 'marge' of method seal"),
    ],
)
def test_a_wrong_plan_is_one_sentence(plan, sentence, capsys):
    Path("train/results/plan.toml").write_text(plan)
    assert fill() == 2
    assert sentence in capsys.readouterr().err


def test_rows_without_a_folder_to_go_to_are_refused_before_any_training(capsys):
    assert fill("--into", "nowhere") == 2
    assert "there is no folder nowhere" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_data_set_that_the_plan_has_not_is_one_sentence(capsys):
    assert fill("yeasts") == 2
    assert "train/results/plan.toml has no table of yeasts" in capsys.readouterr().err


def test_the_committed_plan_names_every_committed_row():
    wanted = wanted_rows(read_plan(RESULTS / "plan.toml"), Path("out"))
    keys = {row.key for row in wanted}
    assert len(keys) == len(wanted) == len({row.run.folder.path for row in wanted})
    committed = [record.key for path in RESULTS.glob("*.csv") for record in read_results(path)]
    assert committed
    assert set(committed) <= keys
