"""`python -m train search`: nothing lost and nothing repeated, alone, shared and after kill -9."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import optuna
import pytest

from train import methods
from train.cli import main
from train.config import read_preset
from train.errors import ConfigError
from train.parsing import parse_run
from train.search.plan import plan_search
from train.search.space import RANGES, Choice, chosen, space_of, stored, suggested
from train.search.study import SharedStudy, open_study
from train.search.trial import Silent, run_trial, score_of

RUN = ["--dataset", "demo", "--hidden", "20", "--epochs"]
WORDS = ["ce", *RUN, "2", "--vary", "lr,dropout"]
DEADLINE_SECONDS = 240


def search(folder, trials, *more):
    return main(["search", *WORDS, "--trials", str(trials), "--out", str(folder), *more])


def rows(folder):
    with (folder / "trials.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def begin(folder, trials, epochs):
    """Such a command in a process of its own."""
    command = [sys.executable, "-m", "train", "search", "ce", *RUN, epochs]
    command += ["--vary", "lr,dropout", "--trials", str(trials), "--out", str(folder)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.parametrize("name", methods.available())
def test_every_value_of_the_table_is_one_that_methods_take(name):
    config = methods.load(name).Config()
    try:
        space = space_of(config, fixed=())
    except ConfigError:
        assert not {field.name for field in dataclasses.fields(config)} & set(RANGES)
        return
    for field, values in space.items():
        ends = values.values if isinstance(values, Choice) else (values.low, values.high)
        for value in ends:
            assert type(value) is type(getattr(config, field)), field
            dataclasses.replace(config, **{field: value})


def test_flags_and_kinds_are_fixed_and_a_wrong_name_is_told():
    config = methods.load("seal").Config()
    space = space_of(config, fixed={"lr", "hidden"})
    assert "loss_lr" in space
    assert not {"lr", "hidden", "loss", "static", "encoder_lr", "epochs"} & set(space)
    assert list(space_of(config, fixed=(), vary="dropout, loss-lr")) == ["dropout", "loss_lr"]
    with pytest.raises(ConfigError, match="did you mean 'dropout'"):
        space_of(config, fixed=(), vary="dropuot")


def test_a_trial_keeps_the_values_that_it_has():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    space = space_of(methods.load("ce").Config(), fixed=())
    trial = study.ask()
    values = suggested(trial, space)
    assert suggested(trial, space) == values == chosen(trial.params, space)
    assert isinstance(values["hidden"], tuple)
    config = methods.load("ce").Config(lr=1.0, **{k: v for k, v in values.items() if k != "lr"})
    assert stored(config, space) == {k: v for k, v in trial.params.items() if k != "lr"}


def test_a_search_ends_in_a_preset_and_goes_on_where_it_ended(tmp_path, capsys):
    folder = tmp_path / "search"
    assert search(folder, 3, "--report") == 0
    first = rows(folder)
    assert [row["state"] for row in first] == ["finished"] * 3
    _, preset = parse_run("ce", [*RUN, "2"])  # which the first trial has, so others must beat it
    assert (float(first[0]["lr"]), float(first[0]["dropout"])) == (preset.lr, preset.dropout)
    best = max(first, key=lambda row: float(row["validation"]))
    config = read_preset(folder / "best.toml", methods.load("ce").Config)
    assert config.lr == float(best["lr"])
    assert config.hidden == (20,)
    page = (folder / "report.html").read_text("utf-8")
    assert page.count("<svg") == 2
    assert "http" not in page.replace("http://www.w3.org", "")
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("model.pt")}
    assert search(folder, 6, "--report") == 0
    assert rows(folder)[:3] == first
    assert len(rows(folder)) == 6
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert "importance" in (folder / "report.html").read_text("utf-8")
    capsys.readouterr()
    assert search(folder, 6) == 0  # nothing is left to do
    assert "[" not in capsys.readouterr().out.partition("best trials")[0]


def test_the_preset_gives_the_run_of_the_best_trial_again(tmp_path):
    folder = tmp_path / "search"
    assert search(folder, 2) == 0
    best = max(rows(folder), key=lambda row: float(row["validation"]))
    out = tmp_path / "again"
    words = ["ce", "--dataset", "demo", "--preset", str(folder / "best.toml"), "--no-progress"]
    assert main([*words, "--out", str(out)]) == 0
    kept = json.loads((folder / "trials" / f"{int(best['trial']):04d}/metrics.json").read_text())
    again = json.loads((out / "metrics.json").read_text())
    assert again["scores"] == kept["scores"]
    assert max(_validation(out)) == float(best["validation"])
    # So does the command that the trial's own run has recorded.
    words = kept["command"].split()[3:-1]
    assert main([*words, str(tmp_path / "third"), "--no-progress"]) == 0
    third = json.loads((tmp_path / "third" / "metrics.json").read_text())
    assert third["scores"] == kept["scores"]


def _validation(run):
    lines = (run / "history.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["validation_example_f1"] for line in lines]


def test_test_rows_are_never_looked_at(tmp_path):
    """With other test scores in the run folder, the score of the trial is the same."""
    plan = plan_search("ce", [*RUN, "2"], "lr", tmp_path / "search")
    study = SharedStudy(plan)
    claim = study.claim(1)
    run = plan.run(claim.values, study.trial_folder(0))
    ending = run_trial(run, Silent(), lambda place, score: False)
    study.finish(claim, ending.value)
    metrics = json.loads(run.folder.metrics.read_text())
    for group in ("fixed", "tuned", "per_label", "oracle"):
        metrics["scores"][group] = {}
    run.folder.metrics.write_text(json.dumps(metrics))
    assert ending.value == score_of(run.folder) == max(_validation(run.folder.path))


def test_methods_without_epochs_are_searched_by_validation_too(tmp_path):
    words = ["mlknn", "--dataset", "demo", "--vary", "k", "--trials", "2", "--out", str(tmp_path)]
    assert main(["search", *words]) == 0
    metrics = json.loads((tmp_path / "trials" / "0001" / "metrics.json").read_text())
    assert float(rows(tmp_path)[1]["validation"]) == metrics["scores"]["validation"]["example_f1"]


def test_a_trial_that_is_worse_is_given_up(tmp_path):
    plan = plan_search("ce", [*RUN, "2"], "lr", tmp_path / "search")
    study = SharedStudy(plan)
    claim = study.claim(1)
    told = []
    ending = run_trial(
        plan.run(claim.values, study.trial_folder(0)), Silent(),
        lambda place, score: told.append((place, score)) or True,
    )  # fmt: skip
    assert ending.state == "given up"
    assert [place for place, _ in told] == [1]
    study.give_up(claim)
    assert [trial.state.name for trial in study.trials()] == ["PRUNED"]


def test_a_trial_that_fails_does_not_end_the_search(tmp_path, capsys, monkeypatch):
    from train.running import Outcome
    from train.search import trial

    real, count = trial.train_planned, Counter()

    def train_planned(run, display):
        count["calls"] += 1
        failed = Outcome("failed", "the loss became nan")
        return failed if count["calls"] == 1 else real(run, display)

    monkeypatch.setattr(trial, "train_planned", train_planned)
    assert search(tmp_path, 2) == 0
    assert [row["state"] for row in rows(tmp_path)] == ["failed", "finished"]
    assert rows(tmp_path)[0]["reason"] == "the loss became nan"
    assert "trial 0 failed: the loss became nan" in capsys.readouterr().out


def test_another_search_in_the_folder_and_flags_of_single_runs_are_refused(tmp_path, capsys):
    assert search(tmp_path, 1) == 0
    assert search(tmp_path, 1, "--seed", "1") == 2
    assert "holds another search, with seed 0, not 1" in capsys.readouterr().err
    assert search(tmp_path, 1, "--overwrite") == 2
    assert "--overwrite is for single runs" in capsys.readouterr().err
    assert search(tmp_path, 1, "--gpus-per-trial", "0.5") == 2
    assert "are for --engine ray" in capsys.readouterr().err


def wait_until(condition):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < DEADLINE_SECONDS
        time.sleep(0.05)


@pytest.mark.slow
def test_kill_9_in_the_middle_loses_and_repeats_nothing(tmp_path):
    folder = tmp_path / "search"
    many = "40"  # epochs enough to be killed among them
    process = begin(folder, 3, many)
    second = folder / "trials" / "0001" / "resume.pt"
    wait_until(second.is_file)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before, killed = open_study(folder).trials
    assert before.state.is_finished()
    assert killed.state.name == "RUNNING"
    stamp = (folder / "trials" / "0000" / "model.pt").stat().st_mtime_ns
    done = begin(folder, 3, many)
    output, _ = done.communicate(timeout=DEADLINE_SECONDS)
    assert done.returncode == 0, output
    after = open_study(folder).trials
    assert [trial.number for trial in after] == [0, 1, 2]
    assert after[0] == before
    assert (folder / "trials" / "0000" / "model.pt").stat().st_mtime_ns == stamp
    assert after[1].params == killed.params
    assert {k: v for k, v in after[1].intermediate_values.items()
            if k in killed.intermediate_values} == killed.intermediate_values  # fmt: skip
    # The killed trial has every epoch once, and the score of one that was never killed.
    scores = _validation(folder / "trials" / "0001")
    plan = plan_search("ce", [*RUN, many], "lr,dropout", tmp_path / "other")
    whole = run_trial(plan.run(killed.params, tmp_path / "whole"), Silent(), lambda p, s: False)
    assert scores == _validation(tmp_path / "whole")
    assert after[1].value == whole.value


@pytest.mark.slow
def test_two_processes_share_a_search(tmp_path):
    folder = tmp_path / "search"
    processes = [begin(folder, 8, "2") for _ in range(2)]
    outputs = [process.communicate(timeout=DEADLINE_SECONDS)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    trials = open_study(folder).trials
    assert [trial.number for trial in trials] == list(range(8))
    assert all(trial.state.is_finished() for trial in trials)
    ended = [line.split()[2] for output in outputs for line in output.splitlines()
             if line.startswith("[")]  # fmt: skip
    assert Counter(ended) == Counter(str(number) for number in range(8))  # each by one of them
    assert len({tuple(trial.params.values()) for trial in trials}) == 8


def test_a_claim_is_of_one_and_a_dead_one_is_taken_over(tmp_path):
    plan = plan_search("ce", [*RUN, "2"], "lr", tmp_path / "search")
    one, two = (SharedStudy(plan) for _ in range(2))
    first, second = one.claim(2), two.claim(2)
    assert (first.number, second.number) == (0, 1)
    assert two.claim(2) is None
    first.lock.close()  # as when its process dies
    again = two.claim(2)
    assert again.number == 0
    assert again.values == first.values
    for claim in (second, again):
        claim.lock.close()


def test_a_trial_that_ends_while_another_looks_for_work_is_not_claimed(tmp_path, monkeypatch):
    plan = plan_search("ce", [*RUN, "2"], "lr", tmp_path / "search")
    one, two = (SharedStudy(plan) for _ in range(2))
    first, lock_of = one.claim(2), two._lock

    def lock_once_it_has_ended(number):
        if number == first.number:
            one.finish(first, 0.5)
        return lock_of(number)

    monkeypatch.setattr(two, "_lock", lock_once_it_has_ended)
    second = two.claim(2)
    second.lock.close()
    assert second.number == 1
    assert two.trials()[0].value == 0.5
