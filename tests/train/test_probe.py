"""The linear probe, and the logistic regressions it consists of."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from train.checkpoint import load_checkpoint
from train.cli import main
from train.data import load_dataset, make_split
from train.logistic import Objective, solve
from train.probe import PENALTIES, Point, chosen, features
from train.probe_command import oracle
from train.problem import make_problem


def drawn(rows=80, size=6, labels=4):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, size)) * np.array([0.1, 1, 1, 3, 10, 1]) + 1
    y = (x @ rng.normal(size=(size, labels)) + 4 * rng.normal(size=(rows, labels)) > 2).astype(
        float
    )
    return torch.from_numpy(x), torch.from_numpy(y)


@pytest.mark.parametrize("penalty", [1e3, 10.0, 1e-1, 1e-3])
def test_every_label_is_solved_as_by_sklearn(penalty):
    x, y = drawn()
    ours = solve(x, y, penalty, max_steps=2000, tolerance=1e-9)
    assert ours.largest_slope <= 1e-9
    for label, truth in enumerate(y.T.numpy()):
        theirs = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=20_000).fit(x, truth)
        np.testing.assert_allclose(ours.weights[label, :-1], theirs.coef_[0], rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(ours.weights[label, -1], theirs.intercept_, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(
            ours.logits(x)[:, label].sigmoid(), theirs.predict_proba(x)[:, 1], atol=1e-4
        )


def test_labels_do_not_disturb_each_other():
    x, y = drawn()
    y = torch.cat([y, torch.zeros(80, 1), torch.ones(80, 1)], 1).double()  # nobody, everybody
    together = solve(x, y, 1.0, max_steps=500, tolerance=1e-8)
    for label in range(4):
        alone = solve(x, y[:, label : label + 1], 1.0, max_steps=500, tolerance=1e-8)
        torch.testing.assert_close(together.weights[label], alone.weights[0], rtol=1e-4, atol=1e-5)
    assert torch.isfinite(together.weights).all()
    assert (together.logits(x)[:, 4] < -5).all()
    assert (together.logits(x)[:, 5] > 5).all()


def test_the_gradient_is_that_of_the_objective():
    x, y = drawn()
    objective = Objective(x, y, 3.0)
    weights = torch.randn(4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights.requires_grad_()
    values, slopes = objective(weights)
    (expected,) = torch.autograd.grad(values.sum(), weights)
    torch.testing.assert_close(slopes, expected)


def test_a_warm_start_ends_at_the_same_place_sooner():
    x, y = drawn()
    cold = solve(x, y, 1.0, max_steps=1000, tolerance=1e-7)
    near = solve(x, y, 1.5, max_steps=1000, tolerance=1e-7).weights
    warm = solve(x, y, 1.0, start=near, max_steps=1000, tolerance=1e-7)
    torch.testing.assert_close(warm.weights, cold.weights, rtol=1e-3, atol=1e-4)
    assert warm.steps < cold.steps


def point(penalty, monitored, test):
    return Point(penalty, 1, 0.0, monitored, {}, {"example_f1": test, "balanced_error": test})


def test_validation_rows_choose_and_test_rows_are_the_oracle():
    points = [point(1.0, 0.5, 0.2), point(0.1, 0.6, 0.3), point(0.01, 0.6, 0.4)]
    assert chosen(points).penalty == 0.1  # of equals the stronger penalty
    assert oracle(points) == {"example_f1": (0.01, 0.4), "balanced_error": (1.0, 0.2)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("probe")
    for words in (["ce", "--hidden", "16", "--epochs", "2"], ["mlknn"]):
        out = str(home / words[0])
        common = ["--dataset", "demo", "--no-progress", "--out", out]
        assert main([*words, *common]) == 0
    return home / "ce" / "model.pt"


def test_features_are_those_of_the_predictor(model):
    checkpoint = load_checkpoint(model)
    data = load_dataset("demo")
    problem = make_problem(data, make_split(data), torch.device("cpu"), "none")
    embedded = features(checkpoint, problem.test.x, problem.device)
    logits = checkpoint.predictor()(problem.test.x.take(torch.arange(len(problem.test))))
    inner = embedded @ checkpoint.label_embeddings().double().T
    torch.testing.assert_close(inner, logits.detach().double(), rtol=1e-4, atol=1e-4)


def test_the_command_writes_a_table_a_picture_and_the_numbers(model, capsys):
    assert main(["probe", str(model), "--dataset", "demo", "--fraction", "0.2"]) == 0
    shown = capsys.readouterr().out
    assert "linear probe: demo-ce on demo" in shown
    assert "oracle" in shown
    folder = model.parent / "probe-demo"
    told = json.loads((folder / "probe.json").read_text("utf-8"))
    path = told["path"]
    assert [point["penalty"] for point in path] == list(reversed(PENALTIES))
    best = max(path, key=lambda point: point["monitored"])
    assert told["chosen"]["monitored"] == best["monitored"]
    assert told["oracle"]["example_f1"]["value"] == max(p["test"]["example_f1"] for p in path)
    assert told["chosen"]["test"]["map_by_label"] > 0.3
    assert (folder / "probe.svg").read_text("utf-8").startswith("<svg")


def test_what_cannot_be_probed_is_told(model, capsys, tmp_path):
    assert (
        main(["probe", str(model.parent.parent / "mlknn" / "model.pt"), "--dataset", "demo"]) == 2
    )
    assert "has no features to probe" in capsys.readouterr().err
    table = tmp_path / "other.csv"
    lines = [f"{i % 7},{i % 3},{'a' if i % 2 else 'b|a'}" for i in range(40)]
    table.write_text("\n".join(["one,two,tags", *lines]))
    words = ["--dataset", str(table), "--label-columns", "tags"]
    assert main(["probe", str(model), *words]) == 2
    assert "the data set has 2" in capsys.readouterr().err
