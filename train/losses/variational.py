"""Gaussians over a latent space: densities, divergences, and labels as thresholded Gaussians."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

LOG_ROOT_TWO_PI = math.log(2 * math.pi) / 2


class Gaussian(NamedTuple):
    """Gaussians with independent components, one a row."""

    mean: Tensor
    log_variance: Tensor

    def sample(self, noise: Tensor | None = None) -> Tensor:
        """One draw of each, through which gradients reach mean and variance.

        noise: standard normal, (batch, latent), where two Gaussians are to share it.
        """
        noise = torch.randn_like(self.mean) if noise is None else noise
        return self.mean + noise * (0.5 * self.log_variance).exp()


def gaussian_kl(one: Gaussian, other: Gaussian) -> Tensor:
    """KL(one || other) in closed form: (batch, latent) each -> (batch,)."""
    difference = one.log_variance - other.log_variance
    distance = (one.mean - other.mean).square() * (-other.log_variance).exp()
    return 0.5 * (difference.exp() - 1 - difference + distance).sum(-1)


def log_density(z: Tensor, gaussian: Gaussian) -> Tensor:
    """Each row's log N(z; mean, variance): (batch, latent) -> (batch,)."""
    distance = (z - gaussian.mean).square() * (-gaussian.log_variance).exp()
    return -0.5 * (distance + gaussian.log_variance + math.log(2 * math.pi)).sum(-1)


def log_densities(z: Tensor, components: Gaussian) -> Tensor:
    """Each row's log N(z_i; mean_j, variance_j) for every component.

    The square is expanded, so that this is two products of matrices and nothing of the size
    (batch, components, latent) is formed. Distances do not change when everything is shifted;
    around the mean of the means the terms are small, and little is lost to cancellation.

    z: (batch, latent); components: (components, latent). Returns (batch, components).
    """
    centre = components.mean.mean(0)
    z, mean = z - centre, components.mean - centre
    precision = (-components.log_variance).exp()
    distance = z.square() @ precision.T - 2 * z @ (mean * precision).T
    constant = mean.square() * precision + components.log_variance + math.log(2 * math.pi)
    return -0.5 * (distance + constant.sum(-1))


def mixture_kl(z: Tensor, posterior: Gaussian, components: Gaussian, y: Tensor) -> Tensor:
    """One-sample estimate of KL(posterior || uniform mixture of the true labels' Gaussians).

    log q(z | x) - log [ 1/|P| sum over true labels j of N(z; mean_j, variance_j) ]. For z drawn
    from the posterior it is right on average, and may be negative. A row without labels has no
    mixture and counts 0.

    z, posterior: (batch, latent); components: (labels, latent); y: (batch, labels) of 0 and 1.
    Returns (batch,).
    """
    is_true = y > 0
    has_labels = is_true.any(1)
    # Where there is none all are let in: a row of -inf alone has no gradient, not even for `where`.
    is_in = is_true | ~has_labels[:, None]
    densities = log_densities(z, components).masked_fill(~is_in, -torch.inf)
    mixture = densities.logsumexp(1) - is_in.sum(1).to(z.dtype).log()
    return torch.where(has_labels, log_density(z, posterior) - mixture, 0.0)


class _LogNormalCdf(torch.autograd.Function):
    """log Phi by operations that processors do on whole vectors.

    `torch.special.log_ndtr` takes a CPU more than three times as long, with its gradient.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, u: Tensor) -> Tensor:
        # Below the lowest, erfc is next to nothing or 0: there the asymptotic series holds.
        lowest = -0.9 * math.sqrt(-2 * math.log(torch.finfo(u.dtype).tiny))
        value: Tensor = (
            torch.special.erfc(u.clamp_min(lowest).mul_(-math.sqrt(0.5))).mul_(0.5).log_()
        )
        is_below = u < lowest
        if not u.is_cpu or is_below.any():  # a GPU is not asked, and waited for
            far = u.clamp_max(lowest)
            series = 1 - far**-2 + 3 * far**-4
            tail = -(far**2) / 2 + (series / -far).log() - LOG_ROOT_TWO_PI
            value = torch.where(is_below, tail, value)
        ctx.save_for_backward(u, value)
        return value

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> Tensor:
        u, value = ctx.saved_tensors  # type: ignore[attr-defined]
        density_ratio: Tensor = u.square().mul_(-0.5).sub_(value).sub_(LOG_ROOT_TWO_PI).exp_()
        return density_ratio.mul_(gradients[0])


def probit_log_likelihood(u: Tensor, y: Tensor) -> Tensor:
    """Each label's log P(y_l) where P(y_l = 1) = Phi(u_l): (..., labels) -> (..., labels).

    As log Phi(u) or log Phi(-u), which stays finite where 1 - Phi(u) is 0 in floating point.
    """
    log_likelihoods: Tensor = _LogNormalCdf.apply(u * (2 * y - 1))  # type: ignore[no-untyped-call]
    return log_likelihoods


def mean_likelihood_nll(log_likelihoods: Tensor) -> Tensor:
    """-log of the mean over samples of the likelihood of the whole label set.

    log_likelihoods: (samples, batch, labels). Returns (batch,).
    """
    rows = log_likelihoods.sum(-1)  # (samples, batch)
    return math.log(len(rows)) - rows.logsumexp(0)


# log Phi(-a) = -a^2/2 + log t + p(t), t = 3 / (3 + a), for a >= 0: p by least squares at Chebyshev
# points of t in [0, 1], highest power first. Off by less than 3e-7 for every a.
TAIL = (
    0.127664842, -0.693048888, 1.42850532, -1.28866586, 0.429704452,
    -0.200462525, 0.133464862, 0.387191821, 1.00004975, -2.01755106,
)  # fmt: skip


def probit_logit(u: Tensor) -> Tensor:
    """The logit of Phi(u), log Phi(u) - log Phi(-u), to about 1e-6 at any u.

    Made of operations that every runtime has, with no difference of near-equal numbers: in float32
    erf(u) is 1 from u = 4 on, where the logit is only 10.
    """
    size = u.abs()
    t = 3 / (3 + size)
    polynomial = torch.zeros_like(u)
    for coefficient in TAIL:
        polynomial = polynomial * t + coefficient
    log_tail = t.log() + polynomial - 0.5 * size.square()  # log Phi(-|u|)
    return u.sign() * (torch.log1p(-log_tail.exp()) - log_tail)
