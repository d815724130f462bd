"""MPVAE: a feature and a label encoder share a latent space; labels are a multivariate probit.

Bai, Kong, Gomes: "Disentangled Variational Autoencoder based Multi-Label Classification with
Covariance-Aware Multivariate Probit Model", IJCAI 2020. A row alone, and a row with its labels, are
encoded as Gaussians that should agree (KL); a draw of each is decoded to the means m of a probit
whose labels are correlated by a factor R that all rows share: label l is true with probability
Phi(m_l + R_l . eps), eps standard normal. A prediction needs the feature branch alone.

    symbol          here
    R               factor
    eps_s           noise, `samples` draws
    m_x, m_e        means from the feature and the label branch
    nll_coeff       nll_weight
    c_coeff         ranking_weight

Differences from the paper and the authors' program: docs/methods/mpvae.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import StepLR

from train.batches import Inputs
from train.config import Monitor, TrainingConfig, require_fraction, require_positive
from train.losses import (
    exponential_ranking,
    gaussian_kl,
    mean_likelihood_nll,
    probit_log_likelihood,
    probit_logit,
)
from train.method import Method
from train.nets.gaussian import GaussianNet, LatentDecoder
from train.optimizer import ScheduledOptimizer
from train.problem import Problem, Shape

SHARPNESS = 5.0


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Hyper-parameters of MPVAE."""

    epochs: int = 200
    """Passes over the training rows, at most."""
    patience: int = 30
    """Stop after this many epochs without a better validation score."""
    monitor: Monitor = "tuned_mean_f1"
    """What the best epoch is judged by; `tuned`: each F1 at its best threshold of 0.1 ... 0.9."""
    batch_size: int = 128
    """Rows in a training batch."""
    lr: float = 1e-3
    """Step size of Adam in the first part of training."""
    lr_decay: float = 0.8
    """Factor on the step size from each part of training to the next."""
    lr_parts: int = 4
    """Equal parts, by epochs, into which training is cut for the step size."""
    weight_decay: float = 1e-5
    """L2 penalty of Adam."""
    hidden: tuple[int, ...] = (256, 512, 256)
    """Widths of the feature encoder."""
    decoder_hidden: tuple[int, ...] = (256, 512)
    """Widths of the decoder."""
    label_hidden: tuple[int, ...] = (512, 256)
    """Widths of the label encoder."""
    latent: int = 50
    """Dimensions of the latent space."""
    dropout: float = 0.5
    """Share of units dropped after each hidden layer of all three networks."""
    samples: int = 100
    """Draws of the correlated noise for each batch."""
    nll_weight: float = 0.1
    """Weight of the negative log-likelihood."""
    ranking_weight: float = 20.0
    """Weight of the rank loss."""
    kl_weight: float = 1.1
    """Weight of the divergence between the two branches."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "lr", "lr_decay", "lr_parts", "latent", "samples")
        require_fraction(self, "dropout")


class ProbitNet(nn.Module):
    """Encodes a row, decodes it to probit means, and integrates the correlated noise out."""

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        n_features, n_labels = shape.n_features, shape.n_labels
        self.encoder = GaussianNet(n_features, config.hidden, config.latent, config.dropout)
        self.decoder = LatentDecoder(
            n_features, config.latent, config.decoder_hidden, config.dropout
        )
        self.head = nn.Linear(config.decoder_hidden[-1], n_labels)
        self.factor = nn.Parameter(torch.empty(n_labels, n_labels))
        nn.init.xavier_uniform_(self.factor)

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (batch, features) to logits (batch, labels).

        m_l + R_l . eps is normal with variance |R_l|^2, so that the mean of its Phi over all eps is
        Phi(m_l / sqrt(1 + |R_l|^2)): what a mean over infinitely many draws would give.
        """
        means = self.head(self.decoder(x, self.encoder(x).mean))
        return probit_logit(means * (1 + self.factor.square().sum(1)).rsqrt())


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained network; the label branch is never exported."""
    return ProbitNet(config, shape)


class Mpvae(Method):
    """The predictor, the label branch, and one optimiser over both."""

    predictor: ProbitNet

    def __init__(self, config: Config, problem: Problem) -> None:
        self.config = config
        shape, device = problem.shape, problem.device
        self.predictor = ProbitNet(config, shape).to(device)
        self.label_encoder = GaussianNet(
            shape.n_features + shape.n_labels, config.label_hidden, config.latent, config.dropout
        ).to(device)
        self.label_head = nn.Linear(config.decoder_hidden[-1], shape.n_labels).to(device)
        networks = (self.predictor, self.label_encoder, self.label_head)
        self.optimizer = ScheduledOptimizer(
            [parameter for network in networks for parameter in network.parameters()],
            lr=config.lr,
            weight_decay=config.weight_decay,
            schedule=lambda adam: StepLR(
                adam, max(1, config.epochs // config.lr_parts), config.lr_decay
            ),
        )

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """One step on both branches' likelihood and rank loss, and on their divergence."""
        config, net, x = self.config, self.predictor, x.to_dense()
        by_row, by_labels = net.encoder(x), self.label_encoder(torch.cat([x, y], 1))
        noise = torch.randn_like(by_row.mean)  # the same for both branches
        z = torch.stack([by_row.sample(noise), by_labels.sample(noise)])
        of_row, of_labels = net.decoder(x, z)
        factor_noise = x.new_empty(config.samples, 1, y.shape[1]).normal_()
        correlated = functional.linear(factor_noise, net.factor)  # (samples, 1, labels)
        nll, ranking = _probit_losses(net.head(of_row) + correlated, y)
        label_nll, label_ranking = _probit_losses(self.label_head(of_labels) + correlated, y)
        kl = gaussian_kl(by_labels, by_row).mean()
        self.optimizer.step(
            config.nll_weight * (nll + label_nll)
            + config.ranking_weight * (ranking + label_ranking)
            + config.kl_weight * kl
        )
        losses = {
            "nll": nll, "ranking": ranking,
            "label_nll": label_nll, "label_ranking": label_ranking, "kl": kl,
        }  # fmt: skip
        return {name: loss.detach() for name, loss in losses.items()}

    def end_epoch(self, validation_score: float) -> None:
        """Follow the schedule."""
        self.optimizer.end_epoch()


def _probit_losses(u: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over rows of the likelihood and of the rank loss of u, (samples, batch, labels)."""
    log_likelihoods = probit_log_likelihood(u, y)
    of_truth = log_likelihoods.exp()
    probabilities = torch.where(y > 0, of_truth, 1 - of_truth)
    ranking = exponential_ranking(probabilities, y, sharpness=SHARPNESS) / SHARPNESS
    return mean_likelihood_nll(log_likelihoods).mean(), ranking.mean()


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    return Mpvae(config, problem)
