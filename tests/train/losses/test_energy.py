from __future__ import annotations

import math

import pytest
import torch

from train import losses

SHAPES = [(1, 1, 1), (1, 5, 3), (4, 1, 2), (3, 6, 1), (5, 7, 4)]  # rows, labels, K


def draw(*shape, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64)


def truths(rows, labels, seed=0):
    """Truths of 0 and 1; the first row has no label, the last (where there are two) has all."""
    y = (draw(rows, labels, seed=seed + 1000) > 0.3).double()
    y[0] = 0
    if rows > 1:
        y[-1] = 1
    return y


def sigmoid(t):
    return 1 / (1 + math.exp(-t)) if t > 0 else math.exp(t) / (1 + math.exp(t))


def hinge(t):
    return max(t, 0.0)


def slow_overlap(y, truth):
    both = sum(min(a, b) for a, b in zip(y, truth, strict=True))
    either = sum(max(a, b) for a, b in zip(y, truth, strict=True))
    return both, either


def slow_f1(y, truth):
    both, either = slow_overlap(y, truth)
    return 2 * both / (both + either) if both + either > 0 else 0.0


def slow_iou(y, truth):
    both, either = slow_overlap(y, truth)
    return both / either if either > 0 else 0.0


def slow_manhattan(y, truth):
    return sum(abs(a - b) for a, b in zip(y, truth, strict=True)) / len(y)


def slow_value_loss(score, value):
    p = sigmoid(score)
    return -value * math.log(p) - (1 - value) * math.log(1 - p)


def slow_ranking(scores):
    return -math.log(math.exp(scores[0]) / sum(math.exp(s) for s in scores))


def slow_log_noise(logits, y):
    total = 0.0
    for logit, on in zip(logits, y, strict=True):
        q = sigmoid(logit)
        total += on * max(math.log(q), -100) + (1 - on) * max(math.log(1 - q), -100)
    return total


def close(value, expected):
    assert value.dtype == torch.float64
    reference = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(value, reference, rtol=1e-10, atol=1e-12)


def has_right_gradient(function, *inputs):
    inputs = [value.clone().requires_grad_() for value in inputs]
    return torch.autograd.gradcheck(function, inputs)


COMPARISONS = {
    losses.relaxed_f1: slow_f1,
    losses.soft_iou: slow_iou,
    losses.manhattan_cost: slow_manhattan,
}


@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize(("rows", "labels", "count"), SHAPES)
def test_comparison_with_the_truth_equals_its_formula(compare, rows, labels, count):
    y, truth = draw(rows, count, labels).sigmoid(), truths(rows, labels)
    y[:, 0] = (y[:, 0] > 0.5).double()
    y[0, -1] = 0  # nothing predicted, nothing true
    slow = COMPARISONS[compare]
    expected = [[slow(c, t) for c in cs] for cs, t in zip(y.tolist(), truth.tolist(), strict=True)]
    close(compare(y, truth), expected)
    close(compare(y[:, 0], truth), [row[0] for row in expected])


@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize("full", [0.0, 1.0])
def test_comparison_is_exact_at_the_ends(compare, full):
    y = torch.full((2, 3), full)
    assert compare(y, y).tolist() == [full if compare is not losses.manhattan_cost else 0.0] * 2
    assert compare(y, 1 - y).tolist() == [0.0 if compare is not losses.manhattan_cost else 1.0] * 2


@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparison_has_its_inner_gradient_where_y_equals_the_truth(compare):
    """Within [0, 1] there is one side only, so finite differences go inwards."""
    truth = truths(3, 4)
    y = truth.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(compare(y, truth).sum(), y)
    for i, j in torch.cartesian_prod(torch.arange(3), torch.arange(4)).tolist():
        inner = truth.clone()
        step = 1e-7 * (1 - 2 * truth[i, j].item())
        inner[i, j] += step
        slope = (compare(inner, truth) - compare(truth, truth)).sum() / step
        assert gradient[i, j].item() == pytest.approx(slope.item(), abs=1e-5)


@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparison_gradient(compare):
    truth = truths(3, 4)
    assert has_right_gradient(lambda y: compare(y, truth), draw(3, 2, 4).sigmoid())


def test_comparison_keeps_its_gradient_where_the_union_rounds_below_one():
    """One true label and little else: I + U - I may come out as 0.99999994 in float32."""
    truth = torch.tensor([[1.0, 0.0]])
    for first in torch.linspace(0.01, 0.99, 99):
        y = torch.tensor([[first, 0.0]], requires_grad=True)
        (gradient,) = torch.autograd.grad(losses.soft_iou(y, truth).sum(), y)
        torch.testing.assert_close(gradient[0], torch.stack([torch.tensor(1.0), -first]))


@pytest.mark.parametrize("rows", [1, 6])
def test_ssvm_margin_equals_its_formula(rows):
    truth, other, cost = draw(rows, seed=1), draw(rows, seed=2), draw(rows, seed=3).abs()
    terms = zip(truth.tolist(), other.tolist(), cost.tolist(), strict=True)
    expected = sum(hinge(c - t + o) for t, o, c in terms) / rows
    close(losses.ssvm_margin(truth, other, cost), expected)
    assert has_right_gradient(lambda t, o: losses.ssvm_margin(t, o, cost), truth, other)


@pytest.mark.parametrize("rows", [1, 6])
def test_inference_net_losses_equal_their_formulas(rows):
    truth, augmented, plain = (draw(rows, seed=seed) for seed in (1, 2, 3))
    cost, cross_entropy = draw(rows, seed=4).abs(), draw(seed=5).abs()
    margin = objective = 0.0
    columns = (truth, augmented, plain, cost)
    for t, a, q, c in zip(*(column.tolist() for column in columns), strict=True):
        margin += (hinge(c - t + a) + 0.3 * hinge(q - t)) / rows
        objective += (-(c + a + 0.3 * q) + 4 * cross_entropy.item()) / rows

    def theta(t, a, q):
        return losses.inference_net_margin(t, a, q, cost, plain_weight=0.3)

    def phi(a, q, c, ce):
        return losses.inference_net_objective(
            a, q, c, ce, plain_weight=0.3, cross_entropy_weight=4.0
        )

    close(theta(truth, augmented, plain), margin)
    close(phi(augmented, plain, cost, cross_entropy), objective)
    assert has_right_gradient(theta, truth, augmented, plain)
    assert has_right_gradient(phi, augmented, plain, cost, cross_entropy)


@pytest.mark.parametrize(("rows", "labels", "count"), SHAPES)
def test_regression_sums_over_rows_and_candidates(rows, labels, count):
    y, truth = draw(rows, count, labels).sigmoid(), truths(rows, labels)
    scores = draw(rows, count, seed=9, scale=3)
    expected = sum(
        slow_value_loss(scores[i, k].item(), slow_f1(y[i, k].tolist(), truth[i].tolist()))
        for i in range(rows)
        for k in range(count)
    )
    values = losses.relaxed_f1(y, truth)
    close(losses.regression(scores, values), expected)
    by_candidate = [losses.regression(scores[:, k], values[:, k]) for k in range(count)]
    close(sum(by_candidate), expected)
    assert has_right_gradient(lambda s: losses.regression(s, values), scores)


@pytest.mark.parametrize(("rows", "labels", "count"), SHAPES)
def test_rankings_equal_their_formulas(rows, labels, count):
    logits, scores = draw(rows, labels), draw(rows, 1 + count, seed=2, scale=2)
    y = (draw(rows, 1 + count, labels, seed=3) > 0).double()
    noise = [
        [slow_log_noise(z, c) for c in cs]
        for z, cs in zip(logits.tolist(), y.tolist(), strict=True)
    ]
    log_noise = losses.log_noise_probability(logits, y)
    close(log_noise, noise)
    plain = sum(slow_ranking(row) for row in scores.tolist())
    corrected = sum(
        slow_ranking([s - n for s, n in zip(*pair, strict=True)])
        for pair in zip(scores.tolist(), noise, strict=True)
    )
    close(losses.ranking(scores), plain)
    close(losses.nce_ranking(scores, log_noise), corrected)
    assert has_right_gradient(losses.ranking, scores)
    assert has_right_gradient(lambda s: losses.nce_ranking(s, log_noise), scores)


def test_log_noise_is_a_distribution_and_its_logs_end_at_minus_100():
    every = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 3)
    log_noise = losses.log_noise_probability(draw(2, 3), every.expand(2, 8, 3))
    close(log_noise.exp().sum(1), [1.0, 1.0])
    logits = torch.tensor([[200.0, -200.0]])
    y = torch.tensor([[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]])
    assert losses.log_noise_probability(logits, y).tolist() == [[0.0, -100.0, -200.0]]


@pytest.mark.parametrize("copies", [1, 4])
def test_ranking_has_its_floor_where_samples_equal_the_truth(copies):
    """The copies score what the truth scores, however far the others fall behind."""
    scores = torch.tensor([[5.0] * (1 + copies) + [-1e4] * 3] * 2)
    floor = 2 * math.log(1 + copies)
    assert losses.ranking(scores).item() == pytest.approx(floor)
    assert losses.nce_ranking(scores, torch.zeros_like(scores)).item() == pytest.approx(floor)


@pytest.mark.parametrize("rows", [1, 4])
def test_task_objectives_equal_their_formulas(rows):
    scores, cross_entropy = draw(rows, scale=2), draw(seed=1).abs()
    energies = {
        losses.task_objective: [-s for s in scores.tolist()],
        losses.value_task_objective: [-sigmoid(s) for s in scores.tolist()],
    }
    for objective, energy in energies.items():

        def loss(s, ce, objective=objective):
            return objective(s, ce, energy_weight=0.7)

        close(loss(scores, cross_entropy), 0.7 * sum(energy) / rows + cross_entropy.item())
        assert has_right_gradient(loss, scores, cross_entropy)


def loss_of_truth_score(name, s):
    """Every loss of theta as a function of s(truth), all else fixed."""
    rest = draw(3, seed=1)
    if name == "regression":
        return losses.regression(s, torch.ones(3))
    if name == "ssvm":
        return losses.ssvm_margin(s, rest + 9, rest.abs())
    if name == "inference_net":
        return losses.inference_net_margin(s, rest + 9, rest + 9, rest.abs(), plain_weight=0.1)
    scores = torch.cat([s[:, None], draw(3, 4, seed=2)], 1)
    if name == "ranking":
        return losses.ranking(scores)
    return losses.nce_ranking(scores, draw(3, 5, seed=3))


@pytest.mark.parametrize("name", ["ssvm", "inference_net", "regression", "ranking", "nce"])
def test_raising_the_score_of_the_truth_lowers_every_loss(name):
    values = [loss_of_truth_score(name, draw(3) + rise).item() for rise in (0.0, 0.5, 1.0)]
    assert values[0] > values[1] > values[2]


@pytest.mark.parametrize("objective", [losses.task_objective, losses.value_task_objective])
def test_raising_the_score_of_the_probabilities_lowers_the_task_objective(objective):
    ce = torch.tensor(1.0, dtype=torch.float64)
    values = [objective(draw(3) + rise, ce, energy_weight=2.0).item() for rise in (0.0, 0.5, 1.0)]
    assert values[0] > values[1] > values[2]


def test_raising_the_scores_of_both_answers_lowers_the_inference_net_objective():
    def objective(a, q, c):
        return losses.inference_net_objective(
            a, q, c, torch.zeros(()), plain_weight=0.1, cross_entropy_weight=1.0
        )

    inputs = [draw(3, seed=seed).requires_grad_() for seed in range(3)]
    for gradient in torch.autograd.grad(objective(*inputs), inputs):
        assert (gradient < 0).all()


def test_relaxed_samples_are_noisy_logits_and_then_the_probabilities():
    logits = draw(40, 5)
    samples = losses.relaxed_samples(
        logits, 50, deviation=1.5, generator=torch.Generator().manual_seed(0)
    )
    assert samples.shape == (40, 50, 5)
    torch.testing.assert_close(samples[:, -1], logits.sigmoid())
    noise = (samples[:, :-1].logit() - logits[:, None]) / 1.5
    assert abs(noise.mean().item()) < 0.05
    assert noise.std().item() == pytest.approx(1, abs=0.05)
    assert len(noise.flatten().unique()) == noise.numel()


def test_one_relaxed_sample_is_the_probabilities_themselves():
    logits = draw(2, 3)
    samples = losses.relaxed_samples(logits, 1, deviation=9.0)
    torch.testing.assert_close(samples, logits.sigmoid().unsqueeze(1))


@pytest.mark.parametrize(
    "sample",
    [
        lambda z, g: losses.relaxed_samples(z, 3, deviation=1.0, generator=g),
        lambda z, g: losses.bernoulli_samples(z.sigmoid(), 3, generator=g),
    ],
)
def test_samples_follow_their_generator_and_carry_no_gradient(sample):
    logits = draw(2, 3).requires_grad_()
    first, again, other = (sample(logits, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert first.dtype == torch.float64
    assert not first.requires_grad
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_bernoulli_samples_have_their_probabilities():
    probabilities = torch.tensor([[0.0, 0.2, 0.7, 1.0]])
    generator = torch.Generator().manual_seed(0)
    samples = losses.bernoulli_samples(probabilities, 4000, generator)
    assert set(samples.unique().tolist()) == {0.0, 1.0}
    means = samples.mean(1)
    torch.testing.assert_close(means, probabilities, rtol=0, atol=0.03)
    assert means[0, [0, 3]].tolist() == [0.0, 1.0]


def test_constants_of_theta_get_no_gradient():
    """Values, costs and log P_N may come from live networks: none of these may learn from them."""
    logits, truth = draw(3, 4).requires_grad_(), truths(3, 4)
    q = logits.sigmoid()
    score = draw(3, seed=1).requires_grad_()
    scores = draw(3, 2, seed=2).requires_grad_()
    log_noise = losses.log_noise_probability(logits, torch.stack([truth, 1 - truth], 1))
    cost = losses.manhattan_cost(q, truth)
    assert log_noise.requires_grad
    assert cost.requires_grad
    for loss in (
        losses.regression(score, losses.relaxed_f1(q, truth)),
        losses.nce_ranking(scores, log_noise),
        losses.ssvm_margin(score, score.detach() + 1, cost),
        losses.inference_net_margin(
            score, score.detach() + 1, score.detach(), cost, plain_weight=0.1
        ),
    ):
        loss.backward()
    assert logits.grad is None
    assert score.grad.abs().min() > 0
    assert scores.grad.abs().min() > 0


def test_cost_and_energy_do_reach_the_inference_networks():
    logits, truth = draw(3, 4).requires_grad_(), truths(3, 4)
    q = logits.sigmoid()
    loss = losses.inference_net_objective(
        q.sum(1) * 0,
        q.sum(1) * 0,
        losses.manhattan_cost(q, truth),
        torch.zeros(()),
        plain_weight=0.1,
        cross_entropy_weight=1.0,
    )
    loss.backward()
    assert torch.equal(logits.grad.sign(), 2 * truth - 1)  # minimising -cost moves off the truth


@pytest.mark.parametrize("extreme", [200.0, -200.0])
def test_extreme_scores_and_logits_stay_finite_in_float32(extreme):
    logits = torch.full((2, 4), extreme)
    truth = torch.tensor([[0.0] * 4, [1.0] * 4])
    samples = losses.relaxed_samples(logits, 3, deviation=2.0)
    sets = torch.cat([truth.unsqueeze(1), losses.bernoulli_samples(logits.sigmoid(), 3)], 1)
    s = torch.tensor([[extreme, -extreme, 0.0]] * 2, requires_grad=True)
    ce = losses.binary_cross_entropy(logits, truth)
    values = [
        losses.regression(s, losses.relaxed_f1(samples, truth)),
        losses.regression(s, losses.soft_iou(samples, truth)),
        losses.ranking(s),
        losses.nce_ranking(s, losses.log_noise_probability(logits, sets)[:, :3]),
        losses.ssvm_margin(s[:, 0], s[:, 1], losses.manhattan_cost(samples, truth)[:, 0]),
        losses.task_objective(s[:, 0], ce, energy_weight=9.0),
        losses.value_task_objective(s[:, 0], ce, energy_weight=9.0),
    ]
    for value in values:
        (gradient,) = torch.autograd.grad(value, s, retain_graph=True)
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()
