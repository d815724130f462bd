import itertools
import math

import pytest
import torch

from train.losses import nce_ranking
from train.losses.samples import LabelNoise, SparseSamples
from train.nets.energy import EnergyNet
from train.nets.mlp import FeatureNet

BATCH, SETS, LABELS, FEATURES, UNITS = 4, 6, 60, 5, 3


def net(seed=0, labels=LABELS, dropout=0.0):
    torch.manual_seed(seed)
    made = EnergyNet(FeatureNet(FEATURES, (8, 7), dropout), labels, UNITS).double()
    with torch.no_grad():
        made.joint_bias.normal_()
    return made


def rows(seed=1, batch=BATCH):
    return torch.randn(batch, FEATURES, generator=torch.Generator().manual_seed(seed)).double()


def sets(share, shape=(BATCH, SETS, LABELS), seed=2):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(shape, generator=generator) < share).double()


@torch.no_grad()
def by_the_formula(energy_net, x, y):
    """One row and one label set, label by label and unit by unit."""
    hidden = energy_net.features(x.unsqueeze(0))[0]
    score = 0.0
    for label, value in enumerate(y.tolist()):
        score += value * float(energy_net.labels[label] @ hidden)
    for unit in range(UNITS):
        z = float(energy_net.joint_bias[unit])
        for label, value in enumerate(y.tolist()):
            z += value * float(energy_net.joint[label, unit])
        score += float(energy_net.joint_weight[unit]) * math.log1p(math.exp(z))
    return score


def test_score_is_the_formula():
    energy_net, x = net(), rows()
    y = torch.rand(BATCH, 2, LABELS, generator=torch.Generator().manual_seed(6)).double()
    scores = energy_net(x, y)
    for row in range(BATCH):
        for position in range(2):
            expected = by_the_formula(energy_net, x[row], y[row, position])
            assert scores[row, position].item() == pytest.approx(expected, rel=1e-12)


def test_one_set_a_row_scores_like_several():
    energy_net, x, y = net(), rows(), sets(0.2)
    together = energy_net(x, y)
    for position in range(SETS):
        torch.testing.assert_close(energy_net(x, y[:, position]), together[:, position])


CASES = {
    "few": sets(0.03),
    "many": sets(0.4),
    "none": torch.zeros(BATCH, SETS, LABELS).double(),
    "all": torch.ones(BATCH, SETS, LABELS).double(),
    "one set": sets(0.1, (BATCH, 1, LABELS)),
    "one label": sets(0.5, (BATCH, SETS, 1)),
    "one row": sets(0.1, (1, SETS, LABELS)),
}


@pytest.mark.parametrize("y", CASES.values(), ids=CASES.keys())
def test_sparse_sets_have_the_scores_and_gradients_of_dense_ones(y):
    energy_net, x = net(labels=y.shape[2]), rows(batch=y.shape[0]).requires_grad_()
    weights = torch.randn(y.shape[:2], generator=torch.Generator().manual_seed(3)).double()
    results = []
    for form in (y, SparseSamples.of_dense(y)):
        scores = energy_net(x, form)
        leaves = [x, *energy_net.parameters()]
        results.append([scores, *torch.autograd.grad((scores * weights).sum(), leaves)])
    for dense, sparse in zip(*results, strict=True):
        torch.testing.assert_close(sparse, dense, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("share", [0.03, 0.4])
def test_sparse_gradients_agree_with_differences(share):
    energy_net = net()
    y = SparseSamples.of_dense(sets(share))

    def score(x, *values):
        names = [name for name, _ in energy_net.named_parameters()]
        return torch.func.functional_call(energy_net, dict(zip(names, values, strict=True)), (x, y))

    leaves = [rows().requires_grad_(), *energy_net.parameters()]
    assert torch.autograd.gradcheck(score, leaves, fast_mode=True)


@pytest.mark.parametrize("size", [-1e3, -90.0, 0.0, 90.0, 1e3])
def test_sparse_scores_are_finite_and_right_for_units_far_from_zero(size):
    energy_net, x = net().float(), rows().float()
    with torch.no_grad():
        energy_net.joint.fill_(size)
    y = sets(0.03).float()
    y[0] = 0
    scores = energy_net(x, SparseSamples.of_dense(y))
    torch.testing.assert_close(scores, energy_net(x, y), rtol=1e-5, atol=1e-4)
    scores.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in energy_net.parameters())


def test_ranking_loss_is_the_same_in_both_forms():
    energy_net, x = net(), rows()
    logits = torch.randn(BATCH, LABELS, generator=torch.Generator().manual_seed(4)).double() - 4
    noise = LabelNoise(logits)
    candidates = noise.candidates(sets(0.05, (BATCH, LABELS)), 9, torch.Generator().manual_seed(5))
    assert isinstance(candidates, SparseSamples)
    losses = [
        nce_ranking(energy_net(x, y), noise.log_probability(y))
        for y in (candidates, candidates.to_dense(torch.float64))
    ]
    torch.testing.assert_close(*losses, rtol=1e-12, atol=1e-12)


def test_same_seed_same_weights_after_sparse_steps():
    def trained():
        energy_net = net(dropout=0.3).float()
        optimizer = torch.optim.AdamW(energy_net.parameters(), lr=0.01)
        for _ in range(5):
            noise = LabelNoise(torch.full((BATCH, LABELS), -3.0))
            candidates = noise.candidates(sets(0.05, (BATCH, LABELS)).float(), 9)
            scores = energy_net(rows().float(), candidates)
            loss = nce_ranking(scores, noise.log_probability(candidates))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return energy_net.state_dict()

    first, again = trained(), trained()
    assert all(torch.equal(first[name], again[name]) for name in first)


# SEAL's Table 17: energy = task + (labels + 2) * units.
@pytest.mark.parametrize(
    ("features", "labels", "widths", "units"),
    [(1836, 159, (400, 400), 200), (500, 983, (400, 400), 200), (1186, 27, (400,), 200)],
)
def test_number_of_parameters(features, labels, widths, units):
    sizes = [features, *widths]
    task = sum((a + 1) * b for a, b in itertools.pairwise(sizes))
    task += labels * widths[-1]
    made = EnergyNet(FeatureNet(features, widths, 0.0), labels, units)
    assert sum(p.numel() for p in made.parameters()) == task + (labels + 2) * units


def test_initial_values():
    torch.manual_seed(0)
    made = EnergyNet(FeatureNet(10, (20,), 0.0), 500, 300)
    bound = math.sqrt(6 / 500)  # Kaiming-uniform, gain of ReLU, fed by 500 labels
    assert made.joint.abs().max() <= bound
    assert made.joint.abs().max() > 0.99 * bound
    assert made.joint.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert not made.joint_bias.any()
    assert made.joint_weight.std().item() == pytest.approx(math.sqrt(2 / 300), rel=0.2)
