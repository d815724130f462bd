from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from train.losses import manhattan_cost, relaxed_f1
from train.nets.energy import EnergyNet
from train.nets.inference import (
    GradientInference,
    adversarial_energy,
    cost_augmented_energy,
    gradient_inference,
    score_energy,
    value_energy,
)
from train.nets.mlp import FeatureNet, TaskNet

FEATURES, LABELS = 5, 6


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def energy_net(features=FEATURES, labels=LABELS, units=7, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return EnergyNet(FeatureNet(features, [8], 0.0), labels, units).double()


def truths(rows, labels=LABELS, seed=5):
    return draw(rows, labels, seed=seed).round()


def slow_inference(energy, start, steps, step_size, rule="adam"):
    """One row and one start at a time, with the optimisers of torch; every point is remembered."""
    answers = []
    for i in range(start.shape[0]):
        seen = []
        for k in range(start.shape[1]):
            y = start[i, k].clone().requires_grad_()
            kind = torch.optim.Adam if rule == "adam" else torch.optim.SGD
            optimizer = kind([y], lr=step_size)
            for _ in range(steps):
                loss = energy(y, i)
                seen.append((loss.item(), y.detach().clone()))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                with torch.no_grad():
                    y.clamp_(0, 1)
            seen.append((energy(y, i).item(), y.detach().clone()))
        answers.append(min(seen, key=lambda pair: pair[0])[1])
    return torch.stack(answers)


def slow_energies(net, x, truth):
    """The four energies by their formulas: one label set and the number of its row -> ()."""

    def score(y, i):
        return net(x[i : i + 1], y[None])[0]

    def f1(y, i):
        both, either = torch.minimum(y, truth[i]).sum(), torch.maximum(y, truth[i]).sum()
        return 2 * both / (both + either)

    def regression_loss(y, i):
        p = torch.sigmoid(score(y, i))
        return -f1(y, i) * p.log() - (1 - f1(y, i)) * (1 - p).log()

    return {
        "score": score_energy(net.at(x)),
        "value": value_energy(net.at(x)),
        "cost": cost_augmented_energy(net.at(x), truth, lambda y, t: 1 - relaxed_f1(y, t)),
        "adversarial": adversarial_energy(net.at(x), truth, relaxed_f1),
    }, {
        "score": lambda y, i: -score(y, i),
        "value": lambda y, i: -1 / (1 + torch.exp(-score(y, i))),
        "cost": lambda y, i: -score(y, i) - (1 - f1(y, i)),
        "adversarial": lambda y, i: -regression_loss(y, i),
    }


@pytest.mark.parametrize("kind", ["score", "value", "cost", "adversarial"])
@pytest.mark.parametrize(("rows", "starts"), [(1, 1), (4, 3)])
@pytest.mark.parametrize(("rule", "step_size"), [("adam", 0.13), ("gradient", 0.4)])
def test_equals_a_slow_loop_with_the_optimisers_of_torch(kind, rows, starts, rule, step_size):
    net, x, truth = energy_net(), draw(rows, FEATURES), truths(rows)
    fast, slow = (energies[kind] for energies in slow_energies(net, x, truth))
    # Inside (0, 1): at the truth itself torch halves the gradient of min and max.
    start = 0.1 + 0.8 * draw(rows, starts, LABELS, seed=2)
    for steps in (0, 1, 3):
        found = gradient_inference(fast, start, steps=steps, step_size=step_size / 5, rule=rule)
        expected = slow_inference(slow, start, steps, step_size / 5, rule)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    if kind in ("score", "value"):
        found = gradient_inference(fast, start, steps=25, step_size=step_size, rule=rule)
        expected = slow_inference(slow, start, 25, step_size, rule)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("rule", ["adam", "gradient"])
def test_finds_the_known_minimum_of_a_convex_energy(rule):
    """sum_j a_j (y_j - c_j)^2 over the box has its minimum at c clamped to the box."""
    centre = torch.tensor([[-0.5, 0.2, 0.9], [1.7, 0.5, 0.0]], dtype=torch.float64)
    weight = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)

    def energy(y):
        return (weight * (y - centre[:, None]).square()).sum(-1)

    start = draw(2, 2, 3)
    found = gradient_inference(energy, start, steps=300, step_size=0.05, rule=rule)
    torch.testing.assert_close(found, centre.clamp(0, 1), rtol=0, atol=1e-3)


@pytest.mark.parametrize("rule", ["adam", "gradient"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_last_point_can_be_the_best(rule, steps):
    start = torch.full((1, 1, 2), 0.9, dtype=torch.float64)
    found = gradient_inference(lambda y: y.sum(-1), start, steps=steps, step_size=0.125, rule=rule)
    expected = torch.full((1, 2), 0.9 - 0.125 * steps, dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_the_start_can_be_the_best():
    """One long step overshoots from 0.5 past the minimum at 0.3 to the wall at 0."""
    start = torch.full((1, 1, 1), 0.5)
    found = gradient_inference(
        lambda y: (y - 0.3).abs().sum(-1), start, steps=1, step_size=9.0, rule="gradient"
    )
    assert found.item() == 0.5


def test_a_point_in_the_middle_can_be_the_best():
    start = torch.full((1, 1, 1), 0.8, dtype=torch.float64)
    found = gradient_inference(
        lambda y: (y - 0.3).abs().sum(-1), start, steps=2, step_size=0.45, rule="gradient"
    )
    assert found.item() == pytest.approx(0.35)


def test_each_row_takes_its_best_start():
    """Two valleys a row, at 0.1 and 0.9; which one is deeper changes with the row."""
    tilt = torch.tensor([[0.3], [-0.3]], dtype=torch.float64)

    def energy(y):
        valleys = ((y - 0.1) * (y - 0.9)).square().sum(-1) * 10
        return valleys + tilt * y.sum(-1)

    start = torch.tensor([[[0.1], [0.9]]] * 2, dtype=torch.float64)
    found = gradient_inference(energy, start, steps=50, step_size=0.01)
    assert found[0].item() < 0.15
    assert found[1].item() > 0.85


def test_of_equal_points_the_earliest_is_kept():
    """The step leads from 0.75 to 0.25, both a quarter away from the minimum."""
    start = torch.tensor([[[0.75], [0.25]]])
    found = gradient_inference(
        lambda y: (y - 0.5).abs().sum(-1), start, steps=1, step_size=0.5, rule="gradient"
    )
    assert found.item() == 0.75


def test_rows_do_not_influence_each_other():
    net, x, start = energy_net(), draw(4, FEATURES), draw(4, 2, LABELS, seed=1)

    def run(rows):
        return gradient_inference(
            score_energy(net.at(x[rows])), start[rows], steps=10, step_size=0.1
        )

    alone = torch.cat([run(slice(i, i + 1)) for i in range(4)])
    torch.testing.assert_close(run(slice(0, 4)), alone, rtol=0, atol=1e-9)


def test_labels_may_lie_on_a_grid():
    start, weight = draw(2, 3, 4, 5), draw(4, 5, seed=1) - 0.5
    grid = gradient_inference(lambda y: (weight * y).sum((-2, -1)), start, steps=4, step_size=0.1)
    flat = gradient_inference(
        lambda y: (weight.flatten() * y).sum(-1), start.flatten(2), steps=4, step_size=0.1
    )
    assert grid.shape == (2, 4, 5)
    torch.testing.assert_close(grid.flatten(1), flat)


@pytest.mark.parametrize("start", [0.0, 0.5])
def test_cost_augmented_inference_leaves_the_truth(start):
    """A network that likes the truth a little is outbid by the cost."""
    truth = truths(3)
    energy = cost_augmented_energy(
        lambda y: 1e-3 * (y * (2 * truth - 1)[:, None]).sum(-1), truth, manhattan_cost
    )
    begin = torch.full((3, 1, LABELS), start, dtype=torch.float64)
    found = gradient_inference(energy, begin, steps=30, step_size=0.1)
    torch.testing.assert_close(found, 1 - truth)


@pytest.mark.parametrize(("score", "target"), [(2.0, "wrong"), (-2.0, "true")])
def test_adversarial_inference_seeks_the_value_furthest_from_the_score(score, target):
    truth = truths(3)
    energy = adversarial_energy(
        lambda y: torch.full(y.shape[:2], score, dtype=torch.float64), truth, relaxed_f1
    )
    start = torch.full((3, 1, LABELS), 0.5, dtype=torch.float64)
    found = gradient_inference(energy, start, steps=30, step_size=0.1)
    value = relaxed_f1(found, truth)
    expected = torch.zeros(3) if target == "wrong" else torch.ones(3)
    torch.testing.assert_close(value, expected.double())


def test_adversarial_inference_raises_the_regression_loss_and_plain_inference_the_score():
    net, x, truth = energy_net(), draw(8, FEATURES), truths(8)
    start = torch.full((8, 1, LABELS), 0.5, dtype=torch.float64)

    def loss(y):
        return nn.functional.binary_cross_entropy_with_logits(
            net(x, y), relaxed_f1(y, truth), reduction="none"
        )

    worst = gradient_inference(
        adversarial_energy(net.at(x), truth, relaxed_f1), start, steps=20, step_size=0.1
    )
    best = gradient_inference(score_energy(net.at(x)), start, steps=20, step_size=0.1)
    assert (loss(worst) > loss(start[:, 0])).all()
    assert (net(x, best) > net(x, start[:, 0])).all()


def test_a_gradient_of_zero_moves_nothing():
    start = draw(2, 1, 3)
    for rule in ("adam", "gradient"):
        found = gradient_inference(
            lambda y: y.sum(-1) * 0, start, steps=5, step_size=0.1, rule=rule
        )
        assert torch.equal(found, start[:, 0])


@pytest.mark.parametrize("with_gradients", [True, False])
def test_networks_get_no_gradient_and_stay_trainable(with_gradients):
    net, task, x = (
        energy_net(),
        TaskNet(FeatureNet(FEATURES, [8], 0.0), LABELS).double(),
        draw(3, FEATURES),
    )
    with torch.set_grad_enabled(with_gradients):
        start = task(x).sigmoid().unsqueeze(1)
        found = gradient_inference(score_energy(net.at(x)), start, steps=3, step_size=0.1)
        logits = GradientInference(net, task, steps=3, step_size=0.1)(x)
    assert not found.requires_grad
    assert not logits.requires_grad
    for parameter in (*net.parameters(), *task.parameters()):
        assert parameter.grad is None
        assert parameter.requires_grad


def test_start_is_not_changed():
    start = draw(2, 2, LABELS)
    before = start.clone()
    gradient_inference(lambda y: y.sum(-1), start, steps=3, step_size=0.1)
    assert torch.equal(start, before)


@pytest.mark.parametrize("energy", [score_energy, value_energy])
def test_predictor_gives_the_logits_of_the_inferred_label_sets(energy):
    net, x, points = energy_net(), draw(4, FEATURES), draw(3, LABELS, seed=1)
    predictor = GradientInference(net, points, steps=12, step_size=0.1, energy=energy)
    expected = gradient_inference(
        energy(net.at(x)), points.expand(4, 3, LABELS), steps=12, step_size=0.1
    )
    torch.testing.assert_close(predictor(x).sigmoid(), expected, rtol=0, atol=1.1e-6)
    assert (expected.eq(0) | expected.eq(1)).any()  # whose plain logits would be infinite


def test_predictor_logits_end_at_those_of_a_millionth():
    class All(nn.Module):
        def at(self, x):
            return lambda y: (y * torch.tensor([1.0, -1.0])).sum(-1)

    predictor = GradientInference(All(), torch.full((1, 2), 0.5), steps=30, step_size=0.1)
    bound = math.log((1 - 1e-6) / 1e-6)
    logits = predictor(torch.zeros(1, 1))
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, torch.tensor([[bound, -bound]]))
    assert bound < 13.9


def test_predictor_starts_from_the_probabilities_of_a_network():
    net, task = energy_net(), TaskNet(FeatureNet(FEATURES, [8], 0.0), LABELS).double()
    x = draw(3, FEATURES)
    untouched = GradientInference(net, task, steps=0, step_size=0.1)
    torch.testing.assert_close(untouched(x), task(x))
    moved = GradientInference(net, task, steps=5, step_size=0.05)
    expected = gradient_inference(
        score_energy(net.at(x)), task(x).sigmoid().unsqueeze(1), steps=5, step_size=0.05
    )
    torch.testing.assert_close(moved(x).sigmoid(), expected, rtol=0, atol=1.1e-6)


def test_predictor_keeps_its_starts_with_the_weights():
    def build(seed):
        points = torch.rand(3, LABELS, generator=torch.Generator().manual_seed(seed))
        return GradientInference(energy_net(seed=seed).float(), points, steps=4, step_size=0.1)

    first, second, x = build(1), build(2), draw(6, FEATURES).float()
    assert not torch.equal(first(x), second(x))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))
    assert torch.equal(first(x), first(x))


def test_predictor_does_not_follow_later_changes_of_the_given_start():
    points = draw(1, LABELS)
    predictor = GradientInference(energy_net(), points, steps=0, step_size=0.1)
    before = predictor(draw(2, FEATURES))
    points.zero_()
    assert torch.equal(predictor(draw(2, FEATURES)), before)


def test_predictor_of_float32_weights_does_not_depend_on_the_batch():
    """In float32 Adam blows up the rounding of small gradients: 1e-5 here, 1e-2 in larger nets."""
    net = energy_net(features=40, labels=300, units=50).float()
    predictor = GradientInference(net, draw(3, 300).float(), steps=20, step_size=0.02)
    x = draw(33, 40, seed=3).float()
    alone = torch.cat([predictor(row[None]).sigmoid() for row in x])
    torch.testing.assert_close(predictor(x).sigmoid(), alone, rtol=0, atol=1e-6)
    assert all(p.dtype == torch.float32 for p in predictor.parameters())


@pytest.mark.parametrize("rule", ["adam", "gradient"])
def test_predictor_can_be_traced_for_any_number_of_rows(rule):
    net = energy_net().float()
    predictor = GradientInference(net, draw(2, LABELS).float(), steps=3, step_size=0.1, rule=rule)
    predictor.eval().requires_grad_(False)
    traced = make_fx(predictor, tracing_mode="symbolic", _allow_non_fake_inputs=True)(
        torch.zeros(2, FEATURES)
    )
    for rows in (1, 2, 9):
        x = draw(rows, FEATURES).float()
        torch.testing.assert_close(traced(x), predictor(x))
    addends = [
        node.args[1]
        for node in traced.graph.nodes
        if "add" in str(node.target) and isinstance(node.args[1], int | float)
    ]
    # The exporter's optimiser drops addends of 1e-8 and less.
    assert all(abs(value) > 1e-7 for value in addends)
    assert bool(addends) == (rule == "adam")
