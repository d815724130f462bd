"""What sampled losses are in expectation (Rawat et al., ICML 2021), and slow references."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from train.losses.sampled import (
    LEAST_PRIOR,
    LOG_ZERO,
    Negatives,
    batch_negatives,
    label_prior,
    log_weights,
    model_negatives,
    sampled_contrastive,
    sampled_softmax,
    uniform_negatives,
)

COUNTS = torch.tensor([7, 5, 4, 2, 1, 1], dtype=torch.float64)
PRIOR = COUNTS / COUNTS.sum()
N_LABELS = len(COUNTS)
TRIALS = 30_000
SCORES = torch.tensor([0.9, -0.4, 0.5, 0.1, 0.7, -0.2], dtype=torch.float64)
WEIGHTINGS = ("constant", "importance", "relative", "tail")

# rho_yy' of the paper's table, by sampler and weighting; m negatives.
RHO = {
    ("uniform", "constant"): lambda y, other, m: 1 / N_LABELS,
    ("uniform", "importance"): lambda y, other, m: 1.0,
    ("uniform", "relative"): lambda y, other, m: m / N_LABELS,
    ("uniform", "tail"): lambda y, other, m: PRIOR[other] / PRIOR[y],
    ("within-batch", "constant"): lambda y, other, m: PRIOR[other],
    ("within-batch", "importance"): lambda y, other, m: 1.0,
    ("within-batch", "relative"): lambda y, other, m: m * PRIOR[y],
    ("within-batch", "tail"): lambda y, other, m: PRIOR[other] / PRIOR[y],
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draws(sampler: str, y: int, m: int, trials: int = TRIALS) -> tuple[torch.Tensor, Negatives]:
    """`trials` independent draws of m negatives for the label y."""
    labels = torch.full((trials,), y)
    if sampler == "model":
        return labels, model_negatives(SCORES.expand(trials, -1), labels, m, generator())
    if sampler == "uniform":
        drawn = uniform_negatives(labels, N_LABELS, trials * m, generator())
    else:  # a batch in which every label has exactly its share
        batch = torch.arange(N_LABELS).repeat_interleave(COUNTS.long())
        drawn = batch_negatives(batch, label_prior(COUNTS), trials * m, generator())
    own = -math.log(N_LABELS) if sampler == "uniform" else math.log(PRIOR[y])
    return labels, Negatives(
        drawn.labels.view(trials, m),
        drawn.log_q.double().view(trials, m),
        torch.full((trials,), own, dtype=torch.float64),
    )


def sampled(loss, sampler: str, weighting: str, y: int, m: int) -> torch.Tensor:
    """The loss of each draw."""
    labels, negatives = draws(sampler, y, m)
    weights = log_weights(weighting, negatives, labels, label_prior(COUNTS))
    return loss(SCORES[labels], SCORES[negatives.labels], weights)


def error(values: torch.Tensor) -> float:
    """Standard error of the mean."""
    return float(values.std() / len(values) ** 0.5)


def implicit_contrastive(y: int, rho) -> float:
    others = [other for other in range(N_LABELS) if other != y]
    penalties = sum(float(rho(other)) * max(float(SCORES[other]), 0) ** 2 for other in others)
    return (1 - float(SCORES[y])) ** 2 + penalties


def implicit_softmax(y: int, rho) -> float:
    others = [other for other in range(N_LABELS) if other != y]
    total = sum(float(rho(other)) * math.exp(SCORES[other] - SCORES[y]) for other in others)
    return math.log(1 + total)


# --- the table of implicit losses


@pytest.mark.parametrize(("sampler", "weighting"), RHO)
@pytest.mark.parametrize("y", [0, 4])
def test_the_contrastive_loss_is_its_implicit_loss_in_expectation(sampler, weighting, y):
    values = sampled(sampled_contrastive, sampler, weighting, y, m=3)
    expected = implicit_contrastive(y, lambda other: RHO[sampler, weighting](y, other, 3))
    assert abs(float(values.mean()) - expected) < 5 * error(values)
    assert error(values) < 0.02 * expected


@pytest.mark.parametrize(("sampler", "weighting"), RHO)
@pytest.mark.parametrize("y", [0, 4])
def test_the_softmax_is_below_its_implicit_loss_and_near_it_for_many_negatives(
    sampler, weighting, y
):
    gaps = {}
    for m in (2, 60):
        bound = implicit_softmax(y, lambda other, m=m: RHO[sampler, weighting](y, other, m))
        values = sampled(sampled_softmax, sampler, weighting, y, m)
        gaps[m] = (bound - float(values.mean())) / bound
        assert float(values.mean()) < bound + 5 * error(values)
    assert gaps[2] > 3 * gaps[60] > -1e-2
    assert gaps[60] < 0.05


def test_negatives_of_the_model_with_importance_give_the_softmax_itself_in_every_draw():
    values = sampled(sampled_softmax, "model", "importance", 2, m=2)
    full = -torch.log_softmax(SCORES, 0)[2]
    torch.testing.assert_close(values, full.expand(TRIALS))


@pytest.mark.parametrize("y", [1, 4])
def test_the_softmax_of_tail_weights_over_all_labels_is_that_of_adjusted_logits(y):
    everyone = torch.arange(N_LABELS).unsqueeze(0)
    # Drawn once each, with q = 1 / L and m = L, so that nothing is left to chance.
    q = torch.full((1, N_LABELS), -math.log(N_LABELS), dtype=torch.float64)
    weights = log_weights(
        "tail", Negatives(everyone, q, q[:, 0]), torch.tensor([y]), label_prior(COUNTS)
    )
    value = sampled_softmax(SCORES[y : y + 1], SCORES.unsqueeze(0), weights)
    adjusted = -torch.log_softmax(SCORES + PRIOR.log(), 0)[y]
    torch.testing.assert_close(value[0], adjusted)


# --- variance, rate, choice of weights and of q


def free_draws(q: torch.Tensor, rho: torch.Tensor, y: int, m: int) -> tuple[torch.Tensor, ...]:
    """Scores and log weights rho / (m q) of m negatives drawn from q, 0 for y: (trials, m)."""
    drawn = torch.multinomial(q.expand(TRIALS, -1), m, replacement=True, generator=generator())
    log_w = (rho[drawn] / (m * q[drawn])).log().masked_fill(drawn == y, LOG_ZERO)
    return SCORES[drawn], log_w


def contrastive_variance(q: torch.Tensor, rho: torch.Tensor, y: int, m: int) -> float:
    """Lemma 1: the sum of w rho psi^2 minus the square of the sum of rho psi, over m."""
    psi = SCORES.clamp_min(0).square()
    others = [other for other in range(N_LABELS) if other != y]
    first = sum(float(rho[o] / (m * q[o]) * rho[o] * psi[o] ** 2) for o in others)
    return first - float(sum(rho[o] * psi[o] for o in others)) ** 2 / m


def some_q_and_rho(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    q = torch.rand(N_LABELS, generator=generator(seed), dtype=torch.float64) + 0.05
    rho = torch.rand(N_LABELS, generator=generator(seed + 100), dtype=torch.float64)
    return q / q.sum(), rho


@pytest.mark.parametrize(("seed", "m"), [(0, 1), (1, 4), (2, 15)])
def test_any_target_is_reached_by_its_weights_with_the_variance_of_lemma_1(seed, m):
    y, (q, rho) = 3, some_q_and_rho(seed)
    false, log_w = free_draws(q, rho, y, m)
    values = sampled_contrastive(SCORES[y].expand(TRIALS), false, log_w)
    expected = implicit_contrastive(y, lambda other: rho[other])
    assert abs(float(values.mean()) - expected) < 5 * error(values)  # Prop. 4
    variance = contrastive_variance(q, rho, y, m)
    assert float(values.var()) == pytest.approx(variance, rel=0.04)


@pytest.mark.parametrize("seed", range(4))
def test_no_other_q_has_less_variance_than_one_proportional_to_rho_psi(seed):
    y, (q, rho) = 3, some_q_and_rho(seed)
    best = rho * SCORES.clamp_min(0).square()
    best[y] = 0
    best = (best + 1e-12) / (best + 1e-12).sum()
    least = contrastive_variance(best, rho, y, m=4)
    assert least == pytest.approx(0, abs=1e-9)  # Prop. 5
    assert contrastive_variance(q, rho, y, m=4) > 1e-4
    halfway = (q + best) / 2
    assert least < contrastive_variance(halfway, rho, y, 4) < contrastive_variance(q, rho, y, 4)


@pytest.mark.parametrize(("m", "tolerance"), [(50, 0.2), (400, 0.06)])
def test_the_squared_error_of_the_softmax_falls_at_the_rate_of_theorem_3(m, tolerance):
    y, (q, rho) = 3, some_q_and_rho(5)
    eta = torch.where(torch.arange(N_LABELS) == y, 0.0, rho / q)  # m w
    terms = eta * SCORES.exp()
    mean = float((q * terms).sum())
    mu = math.exp(SCORES[y]) + mean
    sigma = float((q * terms.square()).sum()) - mean**2
    false, log_w = free_draws(q, rho, y, m)
    values = sampled_softmax(SCORES[y].expand(TRIALS), false, log_w)
    squared = (values - implicit_softmax(y, lambda other: rho[other])).square().mean()
    assert float(squared) == pytest.approx(sigma / (m * mu**2), rel=tolerance)


# --- formulas, gradients, edges


def slow_weight(weighting: str, q_own: float, q_other: float, y: int, other: int, m: int) -> float:
    if y == other:
        return 0.0
    return {
        "constant": 1 / m,
        "importance": 1 / (m * q_other),
        "relative": q_own / q_other,
        "tail": float(PRIOR[other] / (m * q_other * PRIOR[y])),
    }[weighting]


@pytest.mark.parametrize(
    ("sampler", "weighting"), list(product(("uniform", "within-batch"), WEIGHTINGS))
)
def test_losses_equal_loops_over_pairs_and_negatives(sampler, weighting):
    labels = torch.tensor([0, 4, 2, 2])
    scores = torch.randn(4, N_LABELS, generator=generator(1), dtype=torch.float64)
    if sampler == "uniform":
        negatives = uniform_negatives(labels, N_LABELS, 5, generator(3))
    else:
        negatives = batch_negatives(labels, label_prior(COUNTS), 5, generator(3))
    m, q = 5, PRIOR if sampler == "within-batch" else torch.full_like(PRIOR, 1 / N_LABELS)
    weights = log_weights(weighting, negatives, labels, label_prior(COUNTS))
    true = scores[range(4), labels]
    false = scores[:, negatives.labels]
    softmax, contrastive = [], []
    for i, y in enumerate(labels.tolist()):
        total = penalty = 0.0
        for other in negatives.labels.tolist():
            weight = slow_weight(weighting, float(q[y]), float(q[other]), y, other, m)
            total += weight * math.exp(scores[i, other] - scores[i, y])
            penalty += weight * max(float(scores[i, other]), 0) ** 2
        softmax.append(math.log(1 + total))
        contrastive.append((1 - float(scores[i, y])) ** 2 + penalty)
    torch.testing.assert_close(
        sampled_softmax(true, false, weights).tolist(), softmax, rtol=1e-5, atol=1e-7
    )
    torch.testing.assert_close(
        sampled_contrastive(true, false, weights).tolist(), contrastive, rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("loss", [sampled_softmax, sampled_contrastive])
def test_gradients_are_those_of_finite_differences(loss):
    true = torch.randn(3, generator=generator(), dtype=torch.float64, requires_grad=True)
    false = torch.randn(3, 4, generator=generator(1), dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, 4, generator=generator(2), dtype=torch.float64)
    weights[0, 1] = LOG_ZERO
    assert torch.autograd.gradcheck(lambda t, f: loss(t, f, weights), (true, false))


@pytest.mark.parametrize("loss", [sampled_softmax, sampled_contrastive])
def test_a_pair_that_drew_only_itself_has_finite_gradients(loss):
    labels = torch.tensor([2])
    drawn = Negatives(torch.tensor([2, 2]), torch.zeros(2), torch.zeros(1))
    weights = log_weights("importance", drawn, labels, label_prior(COUNTS))
    true, false = torch.tensor([0.3], requires_grad=True), torch.zeros(1, 2, requires_grad=True)
    value = loss(true, false, weights).sum()
    value.backward()
    assert float(value.detach()) == pytest.approx(0.0 if loss is sampled_softmax else 0.49)
    assert false.grad.abs().sum() == 0
    assert torch.isfinite(true.grad).all()


def test_scores_of_a_hundred_do_not_overflow():
    true, false = torch.tensor([-100.0]), torch.tensor([[100.0, 90.0]])
    weights = torch.tensor([[-5.0, 60.0]])
    assert float(sampled_softmax(true, false, weights)) == pytest.approx(250.0)


# --- samplers


def test_samplers_draw_with_the_probabilities_that_they_tell():
    for sampler in ("uniform", "within-batch", "model"):
        _, negatives = draws(sampler, 1, 1)
        shares = torch.bincount(negatives.labels.flatten(), minlength=N_LABELS) / TRIALS
        told = torch.zeros(N_LABELS, dtype=torch.float64)
        told[negatives.labels.flatten()] = negatives.log_q.exp().flatten()
        torch.testing.assert_close(shares.double(), told, atol=0.01, rtol=0)
    assert shares[1] == 0  # the model never draws the label itself


def test_a_label_without_rows_has_a_prior_that_has_a_logarithm():
    prior = label_prior(torch.tensor([3.0, 0.0, 1.0]))
    torch.testing.assert_close(prior.exp(), torch.tensor([0.75, LEAST_PRIOR, 0.25]))
