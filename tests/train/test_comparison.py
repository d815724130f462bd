"""`python -m train compare`: the same runs as by hand, kept, resumed, and shown side by side."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import train.cli
from train import training
from train.checkpoint import load_checkpoint
from train.compare_display import (
    DEFAULT_SCORES,
    leaderboard,
    paper_table,
    save_low_data_plot,
    save_trade_off_plot,
    score_name,
)
from train.comparison import ComparisonOptions, plan
from train.errors import ConfigError
from train.loop import Position, TrainingDivergedError
from train.published import published
from train.running import Outcome
from train.runs_display import RunsDisplay

ROWS = 60
FAST = ["--dataset", "my.npz", "--epochs", "2", "--no-progress"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder but for a small data set."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS, 4)).astype(np.float32)
    np.savez("my.npz", x=x, y=(x[:, :3] > 0).astype(np.uint8))
    return tmp_path


def compare(*words: str) -> int:
    return train.cli.main(["compare", *words])


def test_runs_are_those_of_the_plain_command(capsys):
    assert compare(*FAST, "--methods", "ce,seal:margin", "--seeds", "2") == 0
    out = Path("runs/my/compare")
    assert sorted(path.name for path in out.iterdir()) == [
        "ce-0", "ce-1", "seal-margin-0", "seal-margin-1",
    ]  # fmt: skip
    command = json.loads((out / "seal-margin-1" / "metrics.json").read_text())["command"]
    assert command == (
        "python -m train seal --loss margin --dataset my.npz --epochs 2 --seed 1 "
        "--out runs/my/compare/seal-margin-1"
    )
    shown = capsys.readouterr().out
    assert "seal:margin" in shown
    assert "beside the papers" not in shown

    words = command.split()[3:]
    words[-1] = "by-hand"
    assert train.cli.main([*words, "--no-progress"]) == 0
    ours, theirs = (
        load_checkpoint(Path(p, "model.pt")) for p in (out / "seal-margin-1", "by-hand")
    )
    assert all(torch.equal(ours.weights[name], theirs.weights[name]) for name in ours.weights)


def test_finished_runs_are_kept(capsys):
    words = [*FAST, "--methods", "ce", "--seeds", "1", "--out", "out"]
    compare(*words)
    before = os.stat("out/ce-0/model.pt").st_mtime_ns
    words[words.index("--seeds") + 1] = "2"
    capsys.readouterr()
    assert compare(*words) == 0
    assert "1 of 2 runs were finished" in capsys.readouterr().out
    assert os.stat("out/ce-0/model.pt").st_mtime_ns == before
    assert Path("out/ce-1/model.pt").exists()


def stop_at_the_second_epoch(monkeypatch) -> None:
    """Send this process SIGINT in the second epoch, as Ctrl-C does."""
    step = training._Saving.on_epoch

    def on_epoch(self: object, position: Position) -> None:
        step(self, position)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(training._Saving, "on_epoch", on_epoch)


def untimed_history(folder: Path) -> list[dict[str, float]]:
    """Without the seconds, which no two runs share."""
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [{**json.loads(line), "seconds": None} for line in lines]


def test_an_interrupted_comparison_goes_on_in_mid_run(monkeypatch, capsys):
    words = ["--dataset", "my.npz", "--epochs", "4", "--no-progress", "--methods", "ce"]
    words += ["--seeds", "2"]
    assert compare(*words, "--out", "whole") == 0
    with monkeypatch.context() as patch:
        stop_at_the_second_epoch(patch)
        assert compare(*words, "--out", "cut") == 130
    assert "interrupted with 2 runs to go" in capsys.readouterr().out
    assert not json.loads(Path("cut/ce-0/metrics.json").read_text())["finished"]
    assert len(Path("cut/ce-0/history.jsonl").read_text().splitlines()) < 4
    assert not Path("cut/ce-1").exists()
    assert compare(*words, "--out", "cut") == 0
    for name in ("ce-0", "ce-1"):
        assert untimed_history(Path("cut", name)) == untimed_history(Path("whole", name))


def test_a_run_that_was_killed_before_its_first_epoch_begins_anew():
    Path("out/ce-0").mkdir(parents=True)
    Path("out/ce-0/config.toml").write_text("lr = 0.5\n")
    assert compare(*FAST, "--methods", "ce", "--seeds", "1", "--out", "out") == 0
    assert "lr = 0.5" not in Path("out/ce-0/config.toml").read_text()


def test_a_run_that_fails_does_not_stop_the_others(monkeypatch, capsys):
    def fit(method: object, *args: object, **kwargs: object) -> None:
        if type(method).__name__ == "Seal":
            raise TrainingDivergedError("the loss became nan")
        real(method, *args, **kwargs)

    real = training.fit
    monkeypatch.setattr(training, "fit", fit)
    assert compare(*FAST, "--methods", "seal,ce", "--seeds", "2") == 2
    captured = capsys.readouterr()
    (line,) = captured.err.strip().splitlines()
    assert line == "error: the loss became nan (seal:nce, seed 0; seal:nce, seed 1)"
    assert "ce " in captured.out


@pytest.mark.slow
def test_side_by_side_gives_the_same_weights():
    words = [*FAST, "--methods", "ce,seal", "--seeds", "1"]
    assert compare(*words, "--out", "one") == 0
    assert compare(*words, "--out", "two", "--jobs", "2") == 0
    for name in ("ce-0", "seal-nce-0"):
        one, two = (load_checkpoint(Path(out, name, "model.pt")).weights for out in ("one", "two"))
        assert all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.slow
def test_processes_side_by_side_save_their_state_when_told_to_stop():
    words = ["--dataset", "my.npz", "--epochs", "100000", "--methods", "ce", "--seeds", "3"]
    words += ["--preset", "patient.toml"]
    Path("patient.toml").write_text("patience = 100000\n")
    repository = str(Path(__file__).parents[2])
    comparing = subprocess.Popen(
        [sys.executable, "-m", "train", "compare", *words, "--jobs", "2", "--out", "out"],
        env={**os.environ, "PYTHONPATH": repository, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    while not all(Path(f"out/ce-{seed}/resume.pt").exists() for seed in range(2)):
        assert comparing.poll() is None
        time.sleep(0.02)
    comparing.send_signal(signal.SIGTERM)
    output, _ = comparing.communicate(timeout=120)
    assert comparing.returncode == 130, output
    assert "interrupted with 3 runs to go" in output
    for seed in range(2):
        assert not json.loads(Path(f"out/ce-{seed}/metrics.json").read_text())["finished"]
    assert not Path("out/ce-2").exists()


def test_shares_of_the_rows_have_tables_and_a_figure(capsys):
    words = [*FAST, "--methods", "ce,seal", "--seeds", "1", "--metric", "tuned.micro_f1"]
    words += ["--fraction", "0.5,1", "--plot", "low.svg", "--baseline", "seal:nce"]
    assert compare(*words) == 0
    shown = capsys.readouterr().out
    assert "my, split 60/20/20, 0.5 of the training rows" in shown
    assert Path("runs/my/compare/fraction-0.5/seal-nce-0/metrics.json").exists()
    assert "<svg" in Path("low.svg").read_text()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--methods", "ce,seel"], ["no method 'seel'", "'seal'"]),
        (["--methods", "seal:margn"], ["no kind 'margn'", "'margin'"]),
        (["--methods", "ce:nce"], ["no kind 'nce' of method ce", "only one"]),
        (["--methods", "ce", "--metric", "exampl_f1"], ["exampl_f1", "'example_f1'"]),
        (["--methods", "ce", "--metric", "tunde.micro_f1"], ["tunde", "'tuned'"]),
        (["--methods", "ce", "--metric", "tuned.lrap"], ["tuned.lrap"]),
        (["--methods", "ce", "--seeds", "0"], ["--seeds must be at least 1"]),
        (["--methods", "ce", "--jobs", "0"], ["--jobs must be at least 1"]),
        (["--methods", "ce", "--fraction", "0.5,2"], ["--fraction", "2"]),
        (["--methods", "ce", "--fraction", "half"], ["--fraction", "half"]),
        (["--methods", "ce", "--baseline", "seal"], ["--baseline seal"]),
        (["--methods", "ce", "--plot", "low.svg"], ["--plot", "--fraction"]),
        (["--methods", "ce", "--fraction", "0.5,1", "--plot", "low.doc"], ["--plot low.doc"]),
        (["--methods", "ce", "--fraction", "0.5,1", "--plot", "no/a.png"], ["--plot no/a.png"]),
        (["--methods", "ce", "--epochs", "0"], ["--epochs must be positive"]),
        (["--methods", "ce", "--preset", "x.toml"], ["x.toml is no file"]),
        (["--methods", "seal:nce", "--preset", "kind.toml"], ["seal:nce", "seal:margin"]),
    ],
    ids=lambda value: " ".join(value[1:]),
)
def test_mistakes_are_answered_before_any_training(words, expected, capsys):
    Path("kind.toml").write_text('loss = "margin"\n')
    assert compare("--dataset", "my.npz", *words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert all(word in line for word in expected), line
    assert not Path("runs").exists()


def test_runs_of_another_comparison_are_not_taken_for_ours(capsys):
    words = ["--methods", "ce", "--seeds", "1", "--out", "out"]
    compare(*FAST, *words)
    compare("--dataset", "my.npz", "--epochs", "3", *words)
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "another comparison, with --epochs 2, not 3" in line
    assert compare(*FAST, *words, "--split", "50/25/25") == 2
    assert "--split 60/20/20, not 50/25/25" in capsys.readouterr().err


def test_a_kind_asked_for_twice_is_run_once():
    options = ComparisonOptions(dataset="my.npz", methods="seal,seal:nce,ce", seeds=1)
    assert [run.name for run in plan(options).runs] == ["seal:nce", "ce"]


def shown(renderable: object, width: int = 80) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_the_leaderboard_begins_with_the_best_and_fits_into_80_columns(record):
    records = [record("ce", 0, 0.4), record("seal:margin", 0, 0.5), record("seal:margin", 1, 0.7)]
    text = shown(leaderboard(records, DEFAULT_SCORES))
    assert text.index("seal:margin") < text.index("ce  ")
    assert "0.6000" in text
    assert "±0.1414" in text
    assert "…" not in text


def test_of_errors_the_least_is_the_best(record):
    score = "fixed.balanced_error"
    records = [
        record("spen", scores={score: 0.9}),
        record("dvn", scores={score: 0.2}),
        record("nce", scores={}),
    ]
    rows = shown(leaderboard(records, [score])).splitlines()[-len(records) :]
    assert [row.split()[0] for row in rows] == ["dvn", "spen", "nce"]


def test_the_papers_numbers_stand_beside_ours(record):
    records = [record("ce", 0, 0.47), record("ce", 1, 0.49), record("spo", 0)]
    text = shown(paper_table(records, published("genbase")), 120)
    assert "0.4800 ± 0.0141 0.4737 " in text
    assert "+0.0063" in text
    assert paper_table(records, published("demo")) is None
    doubtful = [record("seal:static-nce", 0, 0.4)]
    assert "0.3782?" in shown(paper_table(doubtful, published("genbase")), 120)


def test_a_metric_alone_is_meant_at_the_fixed_threshold():
    assert score_name("example_f1") == "fixed.example_f1"
    assert score_name("oracle.macro_f1") == "oracle.macro_f1"
    with pytest.raises(ConfigError, match=r"oracle\.lrap"):
        score_name("oracle.lrap")


def test_progress_on_a_terminal():
    comparison = plan(ComparisonOptions(dataset="my.npz", methods="ce", seeds=1, epochs=3))
    (run,) = comparison.runs
    console = Console(force_terminal=True, width=80)
    display = RunsDisplay(console, comparison.runs, done=0, enabled=True)
    with console.capture() as capture, display.progress:
        display.started(run)
        display.epochs_done(run, 2, 0.625)
        display.progress.refresh()
        display.ended(run, Outcome("interrupted"))
    assert "ce, seed 0" in capture.get()
    assert "2/3" in capture.get()
    assert "best 0.6250" in capture.get()


def test_the_figure_shows_scores_over_those_of_the_baseline(record, monkeypatch):
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: drawn.append(figure))
    values = {("ce", 0.1): 0.2, ("ce", 1.0): 0.5, ("seal:nce", 0.1): 0.3, ("seal:nce", 1.0): 0.6}
    records = [
        record(method, seed, value + shift, fraction=share)
        for (method, share), value in values.items()
        for seed, shift in ((0, -0.1), (1, 0.1))
    ]
    save_low_data_plot(Path("low.png"), records, "tuned.macro_f1", "ce")
    (axes,) = drawn[0].axes
    lines = {bars.get_label(): bars.lines for bars in axes.containers}
    np.testing.assert_allclose(np.asarray(lines["ce"][0].get_ydata(), float), [1, 1])
    np.testing.assert_allclose(np.asarray(lines["seal:nce"][0].get_ydata(), float), [1.5, 1.2])
    # The deviation of 0.2 and 0.4 is 0.1414; divided by the baseline's 0.2 and 0.5.
    low, high = lines["seal:nce"][1]
    expected = np.sqrt(0.02) / np.array([0.2, 0.5])
    ends = [np.asarray(cap.get_ydata(), dtype=float) for cap in (low, high)]
    np.testing.assert_allclose((ends[1] - ends[0]) / 2, expected)


def test_the_figure_of_two_scores_has_a_point_a_method(record, monkeypatch):
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: drawn.append(figure))
    head, tail = (score_name(f"pair_recall@10_quantile_{part}") for part in ("head", "tail"))
    records = [
        record(method, seed, scores={head: x + shift, tail: y + 2 * shift})
        for method, (x, y) in {"ce": (0.5, 0.2), "sampled:uniform-tail": (0.4, 0.3)}.items()
        for seed, shift in ((0, -0.1), (1, 0.1))
    ]
    records.append(record("br", 0, scores={head: 0.3}))  # without the other score
    save_trade_off_plot(Path("both.svg"), records, [head, tail])
    (axes,) = drawn[0].axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("R@10 head", "R@10 tail")
    points = {bars.get_label(): bars for bars in axes.containers}
    assert set(points) == {"ce", "sampled:uniform-tail"}
    line = points["ce"].lines[0]
    place = [float(line.get_xdata()[0]), float(line.get_ydata()[0])]
    np.testing.assert_allclose(place, [0.5, 0.2])
    across, up = (bars.get_segments()[0] for bars in points["ce"].lines[2])
    np.testing.assert_allclose(np.ptp(across[:, 0]) / 2, np.sqrt(0.02))
    np.testing.assert_allclose(np.ptp(up[:, 1]) / 2, 2 * np.sqrt(0.02))
