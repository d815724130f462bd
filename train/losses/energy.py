"""Losses of energy networks. They take scores s = -E: raising s(truth) lowers every one of them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# log P is clamped here, as in SEAL's program: a sample that the noise could hardly have drawn
# must not make the loss infinite.
LEAST_LOG_PROBABILITY = -100.0


def bernoulli_samples(
    probabilities: Tensor, count: int, generator: torch.Generator | None = None
) -> Tensor:
    """Draw `count` label sets a row, each label by itself: (batch, count, labels) of 0 and 1."""
    noise = torch.rand(
        probabilities.shape[0],
        count,
        probabilities.shape[1],
        generator=generator,
        device=probabilities.device,
        dtype=probabilities.dtype,
    )
    return (noise < probabilities.unsqueeze(1)).to(probabilities.dtype)


def log_noise_probability(logits: Tensor, y: Tensor) -> Tensor:
    """log P_N(y) = sum_j y_j log q_j + (1 - y_j) log(1 - q_j), with q = sigmoid(logits).

    logits: (batch, labels); y: (batch, K, labels); returns (batch, K).
    """
    log_on = functional.logsigmoid(logits).clamp_min(LEAST_LOG_PROBABILITY)
    log_off = functional.logsigmoid(-logits).clamp_min(LEAST_LOG_PROBABILITY)
    # One product with the difference of both logs, instead of two with y and 1 - y.
    return torch.einsum("bkl,bl->bk", y, log_on - log_off) + log_off.sum(1, keepdim=True)


def nce_ranking(scores: Tensor, log_noise: Tensor) -> Tensor:
    """Noise-contrastive ranking: the truth against K samples of the noise; summed over rows.

    -log softmax(s_k - log P_N(y_k)) at k = 0 (Lee et al., NeurIPS 2022, "NCE ranking").

    scores, log_noise: (batch, 1 + K), the truth first; `log_noise` gets no gradient.
    """
    return -functional.log_softmax(scores - log_noise.detach(), dim=1)[:, 0].sum()


def task_objective(scores: Tensor, cross_entropy: Tensor, *, energy_weight: float) -> Tensor:
    """What the task-net minimises: lambda_1 E(x, sigmoid(F(x))) + cross-entropy, with E = -s.

    scores: (batch,), of the task-net's own probabilities; cross_entropy: (), a mean over rows.
    """
    return cross_entropy - energy_weight * scores.mean()
