"""A method without epochs leaves a whole run or none."""

from __future__ import annotations

import json

import pytest

import export.cli
import train.cli
from train.methods import mlknn

WORDS = ["mlknn", "--dataset", "demo", "--out", "run"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_run_speaks_of_no_epochs_and_can_be_exported(tmp_path, capsys):
    assert train.cli.main(WORDS) == 0
    shown = capsys.readouterr().out
    assert "epoch" not in shown
    assert "saved run/model.pt after" in shown
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"model.pt", "metrics.json", "config.toml", "split.npz"}
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    assert (metrics["epochs"], metrics["finished"]) == (0, True)
    assert metrics["seconds"] > 0
    assert export.cli.main(["run/model.pt"]) == 0


def test_config_toml_can_be_given_back(capsys):
    assert train.cli.main([*WORDS, "--k", "7"]) == 0
    again = ["mlknn", "--dataset", "demo", "--preset", "run/config.toml", "--out", "again"]
    assert train.cli.main(again) == 0
    assert capsys.readouterr().out.count("k 7,") == 2


def test_an_interrupted_fit_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mlknn, "fit", interrupted)
        assert train.cli.main(WORDS) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert list((tmp_path / "run").iterdir()) == []
    assert train.cli.main(WORDS) == 0  # without --overwrite
