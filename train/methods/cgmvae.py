"""C-GMVAE: each label is a Gaussian in a latent space, and rows are drawn to their labels.

Bai, Kong, Gomes: "Gaussian Mixture Variational Autoencoder with Contrastive Learning for
Multi-Label Classification", ICML 2022. A row is encoded as a Gaussian that should resemble the
mixture of its labels' Gaussians (KL); a draw of it is decoded to an embedding, whose inner products
with the label embeddings are the logits. They learn by cross-entropy and by a contrastive loss. A
prediction decodes the mean: no sampling, and no label encoder.

    symbol         here
    w_j            rows of `labels`
    w_x            embedding(decoder(x, z))
    q(z | x)       encoder(x)
    N(mu_j, var_j) label_encoder(labels)
    alpha, beta    contrastive_weight, cross_entropy_weight
    E, d           embedding, latent

Paper and authors' program disagree on the decoder, the weight of KL and a further branch that
decodes the labels' means: each is an option. docs/methods/cgmvae.md lists all differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

from train.batches import Inputs
from train.config import Monitor, TrainingConfig, require_fraction, require_positive
from train.errors import ConfigError
from train.losses import (
    Gaussian,
    binary_cross_entropy,
    gaussian_kl,
    label_contrastive,
    mixture_kl,
)
from train.method import Method
from train.nets.gaussian import GaussianNet, LatentDecoder
from train.optimizer import ScheduledOptimizer
from train.problem import Problem, Shape

CYCLE_GROWTH = 2
"""Each cosine of the schedule is this many times as long as the one before."""


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Hyper-parameters of C-GMVAE."""

    epochs: int = 100
    """Passes over the training rows, at most."""
    patience: int = 30
    """Stop after this many epochs without a better validation score."""
    monitor: Monitor = "tuned_mean_f1"
    """What the best epoch is judged by; `tuned`: each F1 at its best threshold of 0.1 ... 0.9."""
    batch_size: int = 128
    """Rows in a training batch."""
    lr: float = 1e-3
    """Step size of Adam at the start of each cosine."""
    min_lr: float = 2e-4
    """Step size at the end of each cosine."""
    cycle: int = 50
    """Epochs of the first cosine; each later one is twice as long."""
    weight_decay: float = 1e-5
    """L2 penalty of Adam."""
    hidden: tuple[int, ...] = (256, 512, 256)
    """Widths of the feature encoder."""
    decoder_hidden: tuple[int, ...] = (512,)
    """Widths of the decoder before the embedding."""
    label_hidden: tuple[int, ...] = (512, 256)
    """Widths of the label encoder."""
    latent: int = 64
    """Dimensions of the latent space."""
    embedding: int = 512
    """Dimensions of the label and feature embeddings."""
    dropout: float = 0.5
    """Share of units dropped after each hidden layer of all three networks."""
    prior: Literal["mixture", "uni"] = "mixture"
    """A Gaussian for each label, mixed; or one for the whole label set."""
    contrastive: bool = True
    """Learn by the contrastive loss too."""
    kl: bool = True
    """Keep a row's Gaussian near those of its labels."""
    contrastive_weight: float = 1.0
    """Weight of the contrastive loss, alpha."""
    cross_entropy_weight: float = 0.5
    """Weight of the cross-entropy of the feature branch, beta."""
    kl_weight: float = 0.1
    """Weight of the divergence from the prior."""
    reconstruction_weight: float = 0.0
    """Weight of the cross-entropy of the label branch; with 0 there is no such branch."""
    decoder_input: Literal["xz", "z"] = "xz"
    """What the decoder sees: row and latent vector, or the latent vector alone."""
    normalize: bool = False
    """Bring the feature embedding to length 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "lr", "min_lr", "cycle", "latent", "embedding")
        require_fraction(self, "dropout")
        if self.min_lr > self.lr:
            raise ConfigError(f"--min-lr {self.min_lr} must not exceed --lr {self.lr}")


class EmbeddingNet(nn.Module):
    """Encodes a row, decodes it to an embedding, and compares that with every label's."""

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.normalize = config.normalize
        self.encoder = GaussianNet(shape.n_features, config.hidden, config.latent, config.dropout)
        self.decoder = LatentDecoder(
            shape.n_features,
            config.latent,
            config.decoder_hidden,
            config.dropout,
            sees_row=config.decoder_input == "xz",
        )
        self.embedding = nn.Linear(config.decoder_hidden[-1], config.embedding)
        self.labels = nn.Parameter(torch.empty(shape.n_labels, config.embedding))
        nn.init.xavier_uniform_(self.labels)

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (batch, features) to logits (batch, labels), from the mean alone."""
        return self.decode(x, self.encoder(x).mean)

    def decode(self, x: Tensor, z: Tensor) -> Tensor:
        """Logits (..., batch, labels) of rows x with latent vectors z, (..., batch, latent)."""
        embedded = self.embedding(self.decoder(x, z))
        if self.normalize:
            embedded = functional.normalize(embedded, dim=-1)
        return functional.linear(embedded, self.labels)

    def label_embeddings(self) -> Tensor:
        """One vector a label, (labels, embedding)."""
        return self.labels


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained network; the label encoder is never exported."""
    return EmbeddingNet(config, shape)


class Cgmvae(Method):
    """The predictor, the label encoder, and one optimiser over both."""

    predictor: EmbeddingNet

    def __init__(self, config: Config, problem: Problem) -> None:
        self.config = config
        self.predictor = EmbeddingNet(config, problem.shape).to(problem.device)
        self.label_encoder = GaussianNet(
            config.embedding, config.label_hidden, config.latent, config.dropout
        ).to(problem.device)
        self.optimizer = ScheduledOptimizer(
            [*self.predictor.parameters(), *self.label_encoder.parameters()],
            lr=config.lr,
            weight_decay=config.weight_decay,
            schedule=lambda adam: CosineAnnealingWarmRestarts(
                adam, config.cycle, CYCLE_GROWTH, config.min_lr
            ),
        )

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """One step on the weighted sum of the losses that are switched on."""
        config, net, x = self.config, self.predictor, x.to_dense()
        has_label_branch = config.reconstruction_weight > 0
        posterior = net.encoder(x)
        z = [posterior.sample()]
        if config.kl or has_label_branch:
            prior = self._prior(y)
        if has_label_branch:
            z.append(self._prior_mean(prior, y))
        logits = net.decode(x, torch.stack(z))  # (branches, batch, labels)
        losses = {"cross_entropy": binary_cross_entropy(logits[0], y)}
        if has_label_branch:
            losses["reconstruction"] = binary_cross_entropy(logits[1], y)
        if config.kl:
            losses["kl"] = self._divergence(z[0], posterior, prior, y).mean()
        if config.contrastive:
            losses["contrastive"] = label_contrastive(logits, y).mean()
        weighted = [getattr(config, f"{name}_weight") * loss for name, loss in losses.items()]
        self.optimizer.step(torch.stack(weighted).sum())
        return {name: loss.detach() for name, loss in losses.items()}

    def end_epoch(self, validation_score: float) -> None:
        """Follow the schedule."""
        self.optimizer.end_epoch()

    def _prior(self, y: Tensor) -> Gaussian:
        """A Gaussian for each label, (labels, latent), or for each row's label set."""
        labels = self.predictor.labels
        prior: Gaussian = self.label_encoder(labels if self._is_mixture else y @ labels)
        return prior

    def _prior_mean(self, prior: Gaussian, y: Tensor) -> Tensor:
        """The mean of each row's prior, (batch, latent); 0 for a mixture of no labels."""
        if not self._is_mixture:
            return prior.mean
        return y @ prior.mean / y.sum(1, keepdim=True).clamp(min=1)

    def _divergence(self, z: Tensor, posterior: Gaussian, prior: Gaussian, y: Tensor) -> Tensor:
        if self._is_mixture:
            return mixture_kl(z, posterior, prior, y)
        return gaussian_kl(posterior, prior)

    @property
    def _is_mixture(self) -> bool:
        return self.config.prior == "mixture"


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    return Cgmvae(config, problem)
