from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import sparse

from export.to_onnx import export_predictor
from export.verify import check_parity
from train.errors import ConfigError
from train.methods import lamp
from train.methods.lamp import Config, LabelAttention, LoneAttention, build, predictor
from train.problem import Shape

SHAPE = Shape(n_features=5, n_labels=7, n_rows=20)
MASKS = ("none", "prior", "identity")


def small_config(mask: str = "none", **options: object) -> Config:
    return Config(width=8, inner_width=6, heads=2, mask=mask, **options)


def small_net(mask: str = "none", **options: object):
    torch.manual_seed(1)
    net = predictor(small_config(mask, **options), SHAPE).double().eval()
    if net.mask is not None:
        net.mask.copy_(torch.rand(7, 7, generator=torch.Generator().manual_seed(2)) < 0.5)
        net.mask.fill_diagonal_(True)
    return net


def rows(batch: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(batch, 5, generator=generator, dtype=torch.float64)


def slow_attention(states, allowed, part, heads):
    """Label by label and head by head: softmax over the allowed labels of q.k / sqrt(size)."""
    labels, width = states.shape
    size = width // heads
    query, key, value = part.projections.weight.split(width)
    heard = torch.zeros_like(states)
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        for i in range(labels):
            q = query[own] @ states[i]
            others = [j for j in range(labels) if allowed[i, j]]
            weights = [math.exp(q @ (key[own] @ states[j]) / math.sqrt(size)) for j in others]
            for j, weight in zip(others, weights, strict=True):
                heard[i, own] += weight / sum(weights) * (value[own] @ states[j])
    return heard @ part.output.weight.T


def slow_norm(states, norm):
    out = torch.zeros_like(states)
    for i, state in enumerate(states):
        mean = state.mean()
        variance = ((state - mean) ** 2).mean()
        out[i] = (state - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias
    return out


def slow_logits(net, x, heads):
    """The logits of one row, read from the paper's equations."""
    allowed = torch.ones(7, 7, dtype=torch.bool) if net.mask is None else net.mask
    node = net.input.weight @ x + net.input.bias
    states = net.labels
    for layer in net.layers:
        message = layer.from_row.output.weight @ (layer.from_row.value.weight @ node)
        states = slow_norm(states + message, layer.norms[0])
        states = slow_norm(states + layer.after_row(states), layer.norms[1])
        if isinstance(layer.from_labels, LoneAttention):
            lone = layer.from_labels
            heard = states @ lone.value.weight.T @ lone.output.weight.T
        else:
            heard = slow_attention(states, allowed, layer.from_labels, heads)
        states = slow_norm(states + heard, layer.norms[2])
        states = slow_norm(states + layer.after_labels(states), layer.norms[3])
    return torch.stack([state @ label for state, label in zip(states, net.labels, strict=True)])


@pytest.mark.parametrize("mask", MASKS)
@torch.no_grad()
def test_equals_the_equations(mask):
    net, x = small_net(mask), rows()
    expected = torch.stack([slow_logits(net, row, heads=2) for row in x])
    torch.testing.assert_close(net(x), expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_attention_to_oneself_is_attention_under_the_identity():
    full, lone = LabelAttention(8, 2).double(), LoneAttention(8).double()
    lone.value.weight.copy_(full.projections.weight[16:])
    lone.output.weight.copy_(full.output.weight)
    states = torch.randn(3, 7, 8, dtype=torch.float64)
    torch.testing.assert_close(lone(states), full(states, torch.eye(7, dtype=torch.bool)))


@pytest.mark.parametrize("mask", MASKS)
def test_only_labels_that_hear_each_other_influence_each_other(mask):
    net = small_net(mask, layers=1)
    if mask == "prior":
        net.mask.copy_(torch.eye(7, dtype=torch.bool))
        net.mask[2, 4] = True
    logits = net(rows(1))[0]
    gradients = torch.autograd.grad(logits[2], net.labels)[0].abs().sum(1)
    heard = {"none": set(range(7)), "prior": {2, 4}, "identity": {2}}[mask]
    assert set(gradients.nonzero().flatten().tolist()) == heard


def test_gradients_are_those_of_finite_differences():
    net = small_net("prior", layers=1)
    names = [name for name, _ in net.named_parameters()]

    def forward(x, *values):
        weights = dict(zip(names, values, strict=True))
        return torch.func.functional_call(net, weights, (x,))

    leaves = [rows().requires_grad_(), *net.parameters()]
    assert torch.autograd.gradcheck(forward, leaves, fast_mode=True)


def test_the_prior_joins_labels_of_one_training_row(dense_problem):
    targets = sparse.csr_array(np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]], np.uint8))
    joined = lamp.seen_together(targets)
    assert joined.tolist() == [
        [True, True, False, False],
        [True, True, False, False],
        [False, False, True, False],
        [False, False, False, True],
    ]
    method = build(small_config("prior"), dense_problem)
    expected = lamp.seen_together(dense_problem.train.targets)
    assert np.array_equal(method.predictor.mask.numpy(), expected)


def test_a_pair_in_more_than_255_rows_is_not_lost_to_overflow():
    targets = sparse.csr_array(np.ones((256, 2), np.uint8))
    assert lamp.seen_together(targets).all()


@torch.no_grad()
def test_rows_are_scored_in_parts_of_bounded_size(monkeypatch):
    net, x = small_net(), rows(10)
    whole = net(x)
    seen = []
    logits = net.logits
    monkeypatch.setattr(lamp, "STATES_AT_ONCE", 3 * 7)
    monkeypatch.setattr(net, "logits", lambda part: seen.append(len(part)) or logits(part))
    torch.testing.assert_close(net(x), whole)
    assert seen == [3, 3, 3, 1]


def test_the_objective_adds_earlier_states_with_their_weight(dense_problem):
    x = dense_problem.train.x.take(torch.arange(32))
    y = dense_problem.train.y.take(torch.arange(32))
    method = build(small_config(dropout=0.0, intermediate_weight=0.2, layers=2), dense_problem)
    *earlier, last = method.predictor.logits(x)
    assert len(earlier) == 3
    losses = [
        torch.nn.functional.binary_cross_entropy_with_logits(logits, y, reduction="sum") / 32
        for logits in (*earlier, last)
    ]
    step = method.step(x, y)
    torch.testing.assert_close(step["cross_entropy"], losses[-1].detach())
    torch.testing.assert_close(step["intermediate"], sum(losses[:-1]).detach())
    torch.testing.assert_close(step["objective"], (losses[-1] + 0.2 * sum(losses[:-1])).detach())


@pytest.mark.parametrize("mask", MASKS)
def test_every_mask_exports(mask):
    net = small_net(mask).float()
    x = rows(9).float().numpy()
    parity = check_parity(net, export_predictor(net, 5, 7), x)
    assert parity.largest_difference <= 1e-5


def test_embeddings_are_the_output_weights():
    net = small_net()
    assert net.label_embeddings() is net.labels


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 10, "heads": 4}, "--width 10 must be a multiple of --heads 4"),
        ({"heads": 0}, "--heads must be positive"),
        ({"intermediate_weight": -0.1}, "--intermediate-weight"),
    ],
)
def test_bad_options_are_refused_by_their_flag(options, message):
    with pytest.raises(ConfigError, match=message):
        Config(**options)
