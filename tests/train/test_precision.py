"""Half precision: where it is used, that it learns, and where it is refused."""

from __future__ import annotations

import json

import pytest
import torch
from tiny_text import tiny_texts, token_problem, word_problem, write_encoder

from train import methods
from train.checkpoint import load_checkpoint
from train.cli import main
from train.config import TokenConfig
from train.errors import ConfigError
from train.precision import computing_in, may_be_lowered

CPU = torch.device("cpu")


@may_be_lowered
def product(a, b):
    found = a @ b
    product.computed_in = found.dtype
    return found


def test_is_lowered_inside_only_and_returns_float32():
    a, b = torch.rand(8, 5), torch.rand(5, 3)
    exact = product(a, b)
    assert product.computed_in == torch.float32
    with computing_in("bfloat16", CPU):
        lowered = product(a, b)
        assert product.computed_in == torch.bfloat16
        assert lowered.dtype == torch.float32
        assert (a @ b).dtype == torch.float32  # what is not decorated
    torch.testing.assert_close(lowered, exact, rtol=2**-7, atol=0)
    assert not torch.equal(lowered, exact)
    assert torch.equal(product(a, b), exact)


def test_float32_changes_nothing():
    a, b = torch.rand(8, 5), torch.rand(5, 3)
    with computing_in("float32", CPU):
        assert torch.equal(product(a, b), a @ b)


def test_ends_with_an_error():
    with pytest.raises(KeyError), computing_in("bfloat16", CPU):
        raise KeyError
    product(torch.rand(2, 2), torch.rand(2, 2))
    assert product.computed_in == torch.float32


def network_and_inputs(kind, request):
    """A network that may be lowered, and a batch of what it takes."""
    torch.manual_seed(0)
    if kind in ("segmentation", "convolutional energy"):
        problem = request.getfixturevalue("image_problem")
    else:
        problem = word_problem() if kind == "words" else token_problem(tuning="full")
    rows = torch.arange(len(problem.train))
    x, y = problem.views(problem.train.x.batch(rows), problem.train.y.take(rows))
    module = methods.load("seal" if kind == "convolutional energy" else "ce")
    if kind == "convolutional energy":
        return module.loss_net(module.Config(), problem.shape).eval(), (x, y)
    return module.predictor(module.Config(), problem.shape).eval(), (x,)


@pytest.mark.parametrize("kind", ["texts", "words", "segmentation", "convolutional energy"])
def test_scores_and_gradients_are_those_of_float32_but_for_their_precision(kind, request):
    network, inputs = network_and_inputs(kind, request)

    def scores_and_gradient():
        network.zero_grad()
        scores = network(*inputs)
        scores.clamp_min(-50).square().mean().backward()
        weights = [w.grad.flatten() for w in network.parameters() if w.grad is not None]
        return scores.detach(), torch.cat(weights)

    exact = scores_and_gradient()
    with computing_in("bfloat16", CPU):
        lowered = scores_and_gradient()
    for half, whole in zip(lowered, exact, strict=True):
        assert half.dtype == torch.float32
        assert not torch.equal(half, whole)
        assert torch.linalg.norm(half - whole) < 0.03 * torch.linalg.norm(whole)


def test_a_method_without_scaled_gradients_refuses_float16():
    with pytest.raises(ConfigError, match="take bfloat16"):
        TokenConfig(precision="float16")
    methods.load("abalone").Config(precision="float16")


def test_a_run_trains_in_it_and_is_judged_in_float32(tmp_path):
    texts = tiny_texts()
    rows = [
        {"text": text, "labels": "|".join(texts.labels[i] for i in labels.indices)}
        for text, labels in zip(texts.inputs, texts.targets, strict=True)
    ]
    data = tmp_path / "texts.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    write_encoder(tmp_path / "encoder")
    arguments = [
        "ce", "--dataset", str(data), "--encoder", str(tmp_path / "encoder"), "--tuning", "full",
        "--max-tokens", "16", "--epochs", "2", "--schedule", "linear", "--no-report",
    ]  # fmt: skip

    def losses(out, *more):
        assert main([*arguments, "--out", str(out), *more]) == 0
        lines = (out / "history.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line)["cross_entropy"] for line in lines]

    exact = losses(tmp_path / "whole")
    half = losses(tmp_path / "half", "--precision", "bfloat16")
    assert half != exact
    assert half == pytest.approx(exact, rel=0.05)
    checkpoint = load_checkpoint(tmp_path / "half" / "model.pt")
    assert {value.dtype for value in checkpoint.weights.values()} <= {torch.float32, torch.int64}


def test_feature_vectors_refuse_it(tmp_path, capsys):
    arguments = ["ce", "--dataset", "demo", "--precision", "bfloat16"]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "--precision bfloat16 is for text encoders that are trained and for images" in line
    assert not (tmp_path / "run").exists()
