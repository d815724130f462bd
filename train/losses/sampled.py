"""Losses that compare a true label with a few sampled ones instead of with all others.

A row with t labels counts as t pairs (x, y). For each pair m negatives y' are drawn, independently
and with replacement, with probability q; a weight w decides what the loss means for rare labels.
In expectation it is the same loss over all labels y' with the weight rho = m q_y' w_yy', exactly
where negatives are summed, as an upper bound where they are inside a logarithm.

    weighting    w_yy'                   rho, uniform q   rho, q = prior
    constant     1 / m                   1 / L            pi_y'
    importance   1 / (m q_y')            1                1
    relative     q_y / q_y'              m / L            m pi_y
    tail         pi_y' / (m q_y' pi_y)   pi_y' / pi_y     pi_y' / pi_y

Negatives that happen to be y itself weigh 0; other labels of the row are negatives like any other.
Weights are logarithms here, constants for the gradient. pairs: P; negatives: (m,) for all pairs,
or (P, m).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

Sampler: TypeAlias = Literal["uniform", "within-batch", "model"]
Weighting: TypeAlias = Literal["constant", "importance", "relative", "tail"]

# The logarithm of a weight of 0. Finite on purpose: a pair whose negatives all weigh 0 would have
# logsumexp(-inf, ...), whose gradient is no number.
LOG_ZERO = -1e30
# As in the authors' code of logit adjustment: what a label without training rows has for a prior.
LEAST_PRIOR = 1e-12


@dataclass(frozen=True)
class Negatives:
    """Labels drawn for pairs, with the probabilities that they were drawn with."""

    labels: Tensor  # (m,) or (pairs, m)
    log_q: Tensor  # of each, the same shape
    log_q_true: Tensor  # (pairs,): of the pair's own label

    @property
    def count(self) -> int:
        """How many there are for each pair."""
        return self.labels.shape[-1]


def label_prior(counts: Tensor) -> Tensor:
    """Log pi of each label: its share of all (row, label) pairs, (labels,)."""
    return (counts / counts.sum()).clamp_min(LEAST_PRIOR).log()


def uniform_negatives(
    labels: Tensor, n_labels: int, count: int, generator: torch.Generator | None = None
) -> Negatives:
    """Draw from all labels alike; the same negatives for all pairs, whose labels are (pairs,)."""
    device = labels.device
    drawn = torch.randint(n_labels, (count,), generator=generator, device=device)
    log_q = -torch.full((1,), float(n_labels), device=device).log()
    return Negatives(drawn, log_q.expand(count), log_q.expand(len(labels)))


def batch_negatives(
    labels: Tensor, log_prior: Tensor, count: int, generator: torch.Generator | None = None
) -> Negatives:
    """Draw from the labels of the batch's own pairs, (pairs,): in expectation from the prior."""
    drawn = torch.randint(len(labels), (count,), generator=generator, device=labels.device)
    log_q_true = log_prior.index_select(0, labels)
    return Negatives(labels.index_select(0, drawn), log_q_true.index_select(0, drawn), log_q_true)


def model_negatives(
    scores: Tensor, labels: Tensor, count: int, generator: torch.Generator | None = None
) -> Negatives:
    """Draw from the softmax of the current scores, (pairs, labels), without the pair's own label.

    It costs a score of every label: for comparison, and where labels are few.
    """
    others = scores.detach().scatter(1, labels.unsqueeze(1), -torch.inf)
    log_q = functional.log_softmax(others, 1)
    drawn = torch.multinomial(log_q.exp(), count, replacement=True, generator=generator)
    return Negatives(drawn, log_q.gather(1, drawn), torch.full_like(log_q[:, 0], -torch.inf))


def log_weights(
    weighting: Weighting, negatives: Negatives, labels: Tensor, log_prior: Tensor
) -> Tensor:
    """Log w of each pair's negatives, (pairs, m), by the table above.

    labels: (pairs,); log_prior: (labels,).
    """
    log_m = torch.full_like(negatives.log_q, negatives.count).log()
    if weighting == "constant":
        weights = (-log_m).expand(len(labels), -1)
    elif weighting == "importance":
        weights = (-log_m - negatives.log_q).expand(len(labels), -1)
    elif weighting == "relative":
        weights = negatives.log_q_true.unsqueeze(1) - negatives.log_q
    else:
        prior = log_prior[negatives.labels]
        weights = (prior - log_m - negatives.log_q) - log_prior[labels].unsqueeze(1)
    is_own = negatives.labels == labels.unsqueeze(1)
    return weights.masked_fill(is_own, LOG_ZERO)


def sampled_softmax(true: Tensor, false: Tensor, log_weights: Tensor) -> Tensor:
    """log(1 + sum of w e^(f_y' - f_y)) of each pair, (pairs,).

    true: f_y, (pairs,); false: f_y' of its negatives, log_weights: (pairs, m).
    """
    return functional.softplus((false + log_weights).logsumexp(1) - true)


def sampled_contrastive(true: Tensor, false: Tensor, log_weights: Tensor) -> Tensor:
    """(1 - f_y)^2 + sum of w [f_y']_+^2 of each pair, for scores that are cosines: (pairs,).

    true: (pairs,); false, log_weights: (pairs, m).
    """
    return (1 - true).square() + (log_weights.exp() * functional.relu(false).square()).sum(1)
