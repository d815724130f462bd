from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch.distributions import Independent, Normal, kl_divergence

from train.losses import (
    Gaussian,
    gaussian_kl,
    log_densities,
    log_density,
    mean_likelihood_nll,
    mixture_kl,
    probit_log_likelihood,
    probit_logit,
)


def gaussians(rows, latent=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mean, log_variance = torch.randn(2, rows, latent, generator=generator, dtype=torch.float64)
    return Gaussian(mean, log_variance)


def points(rows, latent=3):
    return torch.randn(
        rows, latent, generator=torch.Generator().manual_seed(7), dtype=torch.float64
    )


def slow_density(z, mean, log_variance):
    """Product over components of exp(-(z - m)^2 / 2v) / sqrt(2 pi v)."""
    density = 1.0
    for x, m, s in zip(z.tolist(), mean.tolist(), log_variance.tolist(), strict=True):
        v = math.exp(s)
        density *= math.exp(-((x - m) ** 2) / (2 * v)) / math.sqrt(2 * math.pi * v)
    return density


def labels_of(rows, labels):
    """0 and 1 at random; the first row has none of the labels, the second all."""
    y = (torch.rand(rows, labels, generator=torch.Generator().manual_seed(3)) < 0.5).double()
    y[0], y[1] = 0, 1
    return y


def test_density_of_each_row_is_the_formula():
    z, own = points(5), gaussians(5)
    expected = [math.log(slow_density(z[i], own.mean[i], own.log_variance[i])) for i in range(5)]
    assert log_density(z, own).tolist() == pytest.approx(expected, rel=1e-12)


def test_density_of_each_pair_is_the_formula():
    z, components = points(5), gaussians(4)
    expected = [
        [
            math.log(slow_density(z[i], components.mean[j], components.log_variance[j]))
            for j in range(4)
        ]
        for i in range(5)
    ]
    np.testing.assert_allclose(log_densities(z, components).numpy(), expected, rtol=1e-12)


def test_expanding_the_square_loses_little_far_from_the_origin():
    z, components = points(5, 64) + 100, gaussians(4, 64)
    components = components._replace(mean=components.mean + 100)
    exact = log_densities(z, components)
    single = log_densities(z.float(), Gaussian(*(part.float() for part in components)))
    torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=0)


def test_divergence_of_gaussians_is_the_integral():
    one = Gaussian(torch.tensor([[0.3]]).double(), torch.tensor([[-0.4]]).double())
    other = Gaussian(torch.tensor([[-0.5]]).double(), torch.tensor([[0.7]]).double())
    q, p = (stats.norm(g.mean.item(), math.exp(g.log_variance.item() / 2)) for g in (one, other))
    expected, _ = integrate.quad(lambda z: q.pdf(z) * (q.logpdf(z) - p.logpdf(z)), -12, 12)
    assert gaussian_kl(one, other).item() == pytest.approx(expected, rel=1e-8)


def test_divergence_adds_up_over_components():
    one, other = gaussians(5), gaussians(5, seed=1)
    p, q = (Independent(Normal(g.mean, (g.log_variance / 2).exp()), 1) for g in (one, other))
    torch.testing.assert_close(gaussian_kl(one, other), kl_divergence(p, q))
    assert gaussian_kl(one, one).tolist() == [0.0] * 5


def test_divergence_from_a_mixture_is_the_formula():
    z, own, components, y = points(6), gaussians(6), gaussians(4, seed=1), labels_of(6, 4)
    expected = []
    for i in range(6):
        true = [
            slow_density(z[i], components.mean[j], components.log_variance[j])
            for j in range(4)
            if y[i, j] == 1
        ]
        own_density = slow_density(z[i], own.mean[i], own.log_variance[i])
        expected.append(math.log(own_density / (sum(true) / len(true))) if true else 0.0)
    assert mixture_kl(z, own, components, y).tolist() == pytest.approx(expected, rel=1e-12)


def test_divergence_from_a_mixture_is_right_on_average():
    own, components = gaussians(1, 1), gaussians(3, 1, seed=1)
    y = torch.tensor([[1.0, 0.0, 1.0]])
    q = stats.norm(own.mean.item(), math.exp(own.log_variance.item() / 2))
    parts = [
        stats.norm(components.mean[j].item(), math.exp(components.log_variance[j].item() / 2))
        for j in (0, 2)
    ]
    expected, _ = integrate.quad(
        lambda z: q.pdf(z) * (q.logpdf(z) - math.log(sum(p.pdf(z) for p in parts) / 2)), -12, 12
    )
    torch.manual_seed(0)
    many = Gaussian(own.mean.expand(200_000, 1), own.log_variance.expand(200_000, 1))
    estimates = mixture_kl(many.sample(), many, components, y.expand(200_000, 3))
    error = estimates.std().item() / math.sqrt(200_000)
    assert abs(estimates.mean().item() - expected) < 4 * error


@pytest.mark.parametrize("argument", range(5))
def test_gradients_of_the_mixture_are_those_of_finite_differences(argument):
    inputs = [points(6), *gaussians(6), *gaussians(4, seed=1)]
    inputs[argument].requires_grad_()
    y = labels_of(6, 4)

    def value(z, mean, log_variance, means, log_variances):
        return mixture_kl(z, Gaussian(mean, log_variance), Gaussian(means, log_variances), y)

    assert torch.autograd.gradcheck(value, inputs)


def test_a_row_without_labels_pulls_nowhere():
    parts = [part.requires_grad_() for part in (points(2), *gaussians(2), *gaussians(4, seed=1))]
    z, mean, log_variance, means, log_variances = parts
    own, components = Gaussian(mean, log_variance), Gaussian(means, log_variances)
    mixture_kl(z, own, components, torch.zeros(2, 4)).sum().backward()
    assert all((part.grad == 0).all() for part in parts)


def test_a_draw_far_from_every_label_stays_finite_in_float32():
    z = torch.full((2, 64), 50.0, requires_grad=True)
    own = Gaussian(torch.zeros(2, 64), torch.zeros(2, 64))
    components = Gaussian(torch.zeros(3, 64), torch.full((3, 64), -4.0))
    value = mixture_kl(z, own, components, torch.tensor([[1.0, 0, 0], [0, 1.0, 1.0]]))
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert torch.isfinite(z.grad).all()


def test_draws_have_the_moments_of_the_gaussian():
    torch.manual_seed(0)
    own = gaussians(1)
    many = Gaussian(own.mean.expand(100_000, 3), own.log_variance.expand(100_000, 3)).sample()
    torch.testing.assert_close(many.mean(0), own.mean[0], atol=0.02, rtol=0)
    torch.testing.assert_close(many.var(0).log(), own.log_variance[0], atol=0.02, rtol=0)


def test_probit_likelihood_is_the_formula():
    u = torch.linspace(-4, 4, 9, dtype=torch.float64).expand(2, 9)
    y = torch.tensor([[0.0], [1.0]]).expand(2, 9)
    expected = [stats.norm.logsf(u[0].numpy()), stats.norm.logcdf(u[1].numpy())]
    np.testing.assert_allclose(probit_log_likelihood(u, y).numpy(), expected, rtol=1e-10)


def test_probit_likelihood_and_its_gradient_stay_finite_in_float32():
    u = torch.tensor([-40.0, 40.0, 0.0], requires_grad=True)
    value = probit_log_likelihood(u, torch.tensor([1.0, 0.0, 1.0]))
    value.sum().backward()
    expected = [stats.norm.logcdf(-40), stats.norm.logcdf(-40), math.log(0.5)]
    assert value.tolist() == pytest.approx(expected, rel=1e-5)
    assert u.grad.tolist() == pytest.approx([40.0, -40.0, math.sqrt(2 / math.pi)], rel=1e-2)


@pytest.mark.parametrize(
    ("dtype", "tolerance", "of_gradient"),
    [(torch.float32, 2e-6, 2e-4), (torch.float64, 1e-9, 2e-8)],
)
def test_probit_likelihood_holds_from_tail_to_tail(dtype, tolerance, of_gradient):
    u = torch.linspace(-60, 12, 20_001, dtype=dtype, requires_grad=True)
    value = probit_log_likelihood(u, torch.ones(1, dtype=dtype))
    value.sum().backward()
    exact = u.detach().double().numpy()
    expected = stats.norm.logcdf(exact)
    np.testing.assert_allclose(value.detach(), expected, rtol=tolerance, atol=1e-7)
    slope = np.exp(stats.norm.logpdf(exact) - expected)
    np.testing.assert_allclose(u.grad, slope, rtol=of_gradient)


def test_likelihood_of_a_label_set_is_averaged_over_samples():
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(7, 3, 4, generator=generator, dtype=torch.float64)
    y = (torch.rand(3, 4, generator=generator) < 0.5).double()
    expected = []
    for i in range(3):
        products = []
        for s in range(7):
            p = [stats.norm.cdf(value) for value in u[s, i].tolist()]
            products.append(
                math.prod(q if t else 1 - q for q, t in zip(p, y[i].tolist(), strict=True))
            )
        expected.append(-math.log(sum(products) / 7))
    value = mean_likelihood_nll(probit_log_likelihood(u, y))
    assert value.tolist() == pytest.approx(expected, rel=1e-10)
    assert torch.autograd.gradcheck(
        lambda v: mean_likelihood_nll(probit_log_likelihood(v, y)), (u.requires_grad_(),)
    )


def test_the_marginal_of_a_sampled_probit_has_a_closed_form():
    """E Phi(m + r . eps) = Phi(m / sqrt(1 + |r|^2)): what MPVAE predicts, without sampling."""
    r = torch.tensor([0.8, -0.5, 1.2], dtype=torch.float64)
    torch.manual_seed(0)
    drawn = torch.special.ndtr(0.7 + torch.randn(400_000, 3, dtype=torch.float64) @ r)
    exact = stats.norm.cdf(0.7 / math.sqrt(1 + r.square().sum().item()))
    assert abs(drawn.mean().item() - exact) < 4 * drawn.std().item() / math.sqrt(400_000)


def test_logit_of_a_probit_is_the_formula_far_into_the_tails():
    u = np.concatenate([np.linspace(-6, 6, 601), [-200.0, -50.0, -12.0, 12.0, 50.0, 200.0]])
    exact = special.log_ndtr(u) - special.log_ndtr(-u)
    np.testing.assert_allclose(probit_logit(torch.from_numpy(u)), exact, rtol=2e-7, atol=4e-7)
    single = probit_logit(torch.from_numpy(u).float())
    np.testing.assert_allclose(single, exact, rtol=1e-6, atol=1e-6)


def test_sigmoid_undoes_the_logit_of_a_probit():
    u = torch.linspace(-9, 9, 181)
    torch.testing.assert_close(
        probit_logit(u).sigmoid(), torch.special.ndtr(u), atol=3e-7, rtol=1e-4
    )
