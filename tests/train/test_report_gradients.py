"""The closed forms against autograd, and what they say of networks that are known to know."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from train.losses import LabelNoise, nce_ranking
from train.nets.energy import EnergyNet
from train.nets.mlp import FeatureNet
from train.report.gradients import (
    JointTerm,
    LabelPairs,
    find_pairs,
    is_taxonomy,
    summarise,
)

N_LABELS, UNITS = 7, 5


def term_of(net: EnergyNet) -> JointTerm:
    arrays = (net.joint, net.joint_bias, net.joint_weight)
    return JointTerm(*(array.detach().double().numpy() for array in arrays))


@pytest.fixture
def net() -> EnergyNet:
    torch.manual_seed(0)
    net = EnergyNet(FeatureNet(3, (4,), 0.0), N_LABELS, UNITS).double()
    torch.nn.init.normal_(net.joint_bias)
    return net


def joint_score(net: EnergyNet, y: torch.Tensor) -> torch.Tensor:
    """s(x, y) less its local part: the score with the label vectors b at zero."""
    torch.nn.init.zeros_(net.labels)
    return net(torch.zeros(len(y), 3, dtype=torch.float64), y)


def test_gradient_is_that_of_autograd(net):
    y = torch.rand(20, N_LABELS, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(joint_score(net, y).sum(), y)
    for label in range(N_LABELS):
        ours = term_of(net).gradient(y.detach().numpy(), label)
        np.testing.assert_allclose(ours, expected[:, label].numpy(), rtol=1e-10)


def test_interaction_is_the_mean_hessian_of_autograd(net):
    y = torch.rand(20, N_LABELS, dtype=torch.float64)
    hessians = [
        torch.autograd.functional.hessian(lambda row: joint_score(net, row[None]).sum(), row)
        for row in y
    ]
    ours = term_of(net).mean_interaction(y.numpy(), np.array([4, 0, 2]))
    expected = torch.stack(hessians).mean(0).numpy()[np.ix_([4, 0, 2], [4, 0, 2])]
    np.testing.assert_allclose(ours, expected, rtol=1e-9)


def test_interaction_is_the_difference_of_gradients(net):
    term, step = term_of(net), 1e-5
    y = np.random.default_rng(0).random((20, N_LABELS))
    up, down = y.copy(), y.copy()
    up[:, 1] += step
    down[:, 1] -= step
    slope = (term.gradient(up, 3) - term.gradient(down, 3)).mean() / (2 * step)
    ours = term.mean_interaction(y, np.arange(N_LABELS))
    assert ours[1, 3] == pytest.approx(slope, rel=1e-6)


def label_sets(*rows_of_each: np.ndarray) -> sparse.csr_array:
    return sparse.csr_array(np.stack(rows_of_each, axis=1).astype(np.uint8))


def named(pairs: LabelPairs, kind: np.ndarray, names: list[str]) -> set[tuple[str, str]]:
    return {(names[pairs.labels[i]], names[pairs.labels[k]]) for i, k in kind}


def test_pairs_of_a_taxonomy():
    rng = np.random.default_rng(0)
    leaf, other = rng.random(400) < 0.3, rng.random(400) < 0.4
    rare = np.arange(400) < 3
    names = ["01", "01/02", "01/02/05", "02", "02/01"]
    targets = label_sets(leaf, leaf, leaf, other | rare, rare)
    pairs = find_pairs(names, targets)
    assert named(pairs, pairs.implied, names) == {
        ("01/02", "01"), ("01/02/05", "01"), ("01/02/05", "01/02"),
    }  # fmt: skip
    unrelated = {frozenset(pair) for pair in named(pairs, pairs.unrelated, names)}
    assert unrelated == {frozenset((name, "02")) for name in names[:3]}
    assert len(pairs.unrelated) == 3
    assert "taxonomy" in pairs.rule


def test_pairs_by_what_occurs_together():
    rng = np.random.default_rng(1)
    part, free = rng.random(1000) < 0.2, rng.random(1000) < 0.3
    whole = part | (rng.random(1000) < 0.2)
    always = np.ones(1000, dtype=bool)
    names = ["part", "whole", "free", "always"]
    pairs = find_pairs(names, label_sets(part, whole, free, always))
    # Every row of every label has `always` too, but so has every other row: no lift.
    assert named(pairs, pairs.implied, names) == {("part", "whole")}
    assert ("whole", "part") not in named(pairs, pairs.unrelated, names)
    assert ("part", "free") in named(pairs, pairs.unrelated, names)


def test_what_a_taxonomy_is():
    assert is_taxonomy(["01", "01/02", "99"])
    assert not is_taxonomy(["input/output", "cat"])
    assert not is_taxonomy(["cat", "dog"])


def trained_on(sets: torch.Tensor) -> EnergyNet:
    """An energy network that has learned label sets alone, by ranking them above noise."""
    torch.manual_seed(0)
    net = EnergyNet(FeatureNet(1, (2,), 0.0), sets.shape[1], 16)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    logits = torch.logit(sets.mean(0)).expand(len(sets), -1)
    x = torch.zeros(len(sets), 1)
    for _ in range(150):
        noise = LabelNoise(logits)
        candidates = noise.candidates(sets, 5)
        loss = nce_ranking(net(x, candidates), noise.log_probability(candidates))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def children_and_parents() -> tuple[list[str], np.ndarray]:
    rng = np.random.default_rng(2)
    children = rng.random((300, 6)) < 0.2
    parents = children | (rng.random((300, 6)) < 0.2)
    names = [f"{i}/0" for i in range(6)] + [str(i) for i in range(6)]
    return names, np.concatenate([children, parents], 1)


def test_a_trained_network_knows_which_labels_imply_which():
    names, sets = children_and_parents()
    pairs = find_pairs(names, sparse.csr_array(sets.astype(np.uint8)))
    assert len(pairs.implied) == 6
    summary = summarise(term_of(trained_on(torch.from_numpy(sets).float())), pairs)
    assert summary.difference > 0
    assert summary.interval[0] > 0
    assert summary.p_value < 0.01
    assert (summary.implied > 0).all()


def test_an_untrained_network_knows_nothing():
    names, sets = children_and_parents()
    pairs = find_pairs(names, sparse.csr_array(sets.astype(np.uint8)))
    p_values = []
    for seed in range(10):
        torch.manual_seed(seed)
        p_values.append(
            summarise(term_of(EnergyNet(FeatureNet(1, (2,), 0.0), 12, 16)), pairs).p_value
        )
    assert min(p_values) > 0.005
    assert 0.2 < np.mean(p_values) < 0.8


def test_too_few_pairs_have_no_summary(net):
    names = list("abcdefg")
    pairs = find_pairs(names, sparse.csr_array(np.eye(N_LABELS, dtype=np.uint8)))
    assert summarise(term_of(net), pairs) is None
