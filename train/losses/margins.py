"""Pairwise margins for a long tail: log(1 + sum over y' != y of rho_yy' exp(f_y' - f_y)).

A row with t labels is t pairs (row, y), each a task with one right answer: the other true labels of
the row are among the y' of each pair, as in Rawat et al. (ICML 2021), whose reduction this is. A
loss is the mean over the pairs of the batch, 0 where there is none.

With rho_yy' = a_y b_y' all of them are one function of the plain softmax cross-entropy c of the
logits f + log b: the sum is r_y (exp(c_y) - 1) with r_y = a_y b_y, so that

    loss_y = log(1 + r_y (exp(c_y) - 1)) = c_y + log(exp(-c_y) + r_y (1 - exp(-c_y)))

which neither overflows nor subtracts numbers that are nearly equal, however small r_y is.
"""

from __future__ import annotations

import torch
from torch import Tensor


def logit_adjusted(logits: Tensor, targets: Tensor, prior: Tensor, *, tau: float = 1.0) -> Tensor:
    """Softmax cross-entropy of f + tau log prior: rho = (prior_y' / prior_y)^tau.

    Menon et al., ICLR 2021. The scores that are best for it weigh all labels alike, however rare;
    tau 0 is the plain softmax.

    logits, targets: (batch, labels), targets 0 or 1. prior: (labels,), each label's share of the
    training pairs, positive.
    """
    return _mean_over_pairs(_cross_entropies(logits + tau * prior.log()), targets)


def equalised(logits: Tensor, targets: Tensor, prior: Tensor, *, power: float = 1.0) -> Tensor:
    """Softmax in which a rare label is hardly pushed down for another's sake: rho = prior_y'^power.

    logits, targets, prior: as in `logit_adjusted`.
    """
    losses = _cross_entropies(logits + power * prior.log())
    return _mean_over_pairs(_scaled(losses, prior**power), targets)


def adaptive_margin(
    logits: Tensor, targets: Tensor, prior: Tensor, *, power: float = 0.25
) -> Tensor:
    """Softmax in which a rare label must win by more: rho proportional to prior_y^-power.

    Cao et al., NeurIPS 2019. The factor is such that the mean of rho over training pairs is 1, that
    of the plain softmax.

    logits, targets, prior: as in `logit_adjusted`.
    """
    rho = prior**-power
    return _mean_over_pairs(_scaled(_cross_entropies(logits), rho / (prior * rho).sum()), targets)


def _cross_entropies(logits: Tensor) -> Tensor:
    """-log softmax: what each label would cost as the right answer, (batch, labels)."""
    return -logits.log_softmax(1)


def _scaled(cross_entropies: Tensor, ratio: Tensor) -> Tensor:
    """log(1 + ratio (exp(c) - 1)) of every c >= 0; ratio: (labels,), positive."""
    rest = torch.exp(-cross_entropies) - ratio * torch.expm1(-cross_entropies)
    return cross_entropies + rest.log()


def _mean_over_pairs(losses: Tensor, targets: Tensor) -> Tensor:
    return (losses * targets).sum() / targets.sum().clamp(min=1)
