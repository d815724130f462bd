"""Two-way loss (Kobayashi, CVPR 2023): true above false within each row, and within each label.

For a set of logits x with true ones P and false ones N,

    l(P, N) = softplus( T_N log sum over N of exp(x_n / T_N)
                      + T_P log sum over P of exp(-x_p / T_P) + margin )

a smooth form of "the highest false logit stays below the lowest true one". With both temperatures 1
and a single true logit it is softmax cross-entropy. Adding the same number to all logits of a set
changes nothing, so adding e_P to true and e_N to false logits is a margin of e_N - e_P.

Gradients: minus the softmax of -x / T_P over P, and the softmax of x / T_N over N, both times
sigmoid(argument of the softplus); those of a set add up to 0.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def row_wise(
    logits: Tensor,
    targets: Tensor,
    *,
    positive_temperature: float = 4.0,
    negative_temperature: float = 1.0,
    margin: float = 0.0,
) -> Tensor:
    """Mean of l of each row's labels, over the rows that have a label (Eq. 15).

    logits, targets: (batch, labels), targets 0 or 1. A row with all labels counts 0; if no row has
    a label the loss is 0, with a gradient of 0.
    """
    return _mean_set_loss(logits, targets, positive_temperature, negative_temperature, margin)


def label_wise(
    logits: Tensor,
    targets: Tensor,
    *,
    positive_temperature: float = 4.0,
    negative_temperature: float = 1.0,
    margin: float = 0.0,
) -> Tensor:
    """Mean of l of each label's rows in the batch, over the labels that some row has (Eq. 16).

    As `row_wise` of the transposed matrices. The smaller the batch, the fewer labels it can judge.
    """
    return _mean_set_loss(logits.T, targets.T, positive_temperature, negative_temperature, margin)


def two_way(
    logits: Tensor,
    targets: Tensor,
    *,
    positive_temperature: float = 4.0,
    negative_temperature: float = 1.0,
    margin: float = 0.0,
) -> Tensor:
    """The sum of `row_wise` and `label_wise` (Eq. 17)."""
    settings = (positive_temperature, negative_temperature, margin)
    return _mean_set_loss(logits, targets, *settings) + _mean_set_loss(
        logits.T, targets.T, *settings
    )


def _mean_set_loss(
    logits: Tensor, targets: Tensor, positive_temp: float, negative_temp: float, margin: float
) -> Tensor:
    """Mean of l over the sets with a true logit; logits, targets: (sets, members)."""
    positive = targets > 0.5
    has_positive = positive.any(1)
    has_both = has_positive & ~positive.all(1)
    # -inf, so that nothing leaks however large a logit is. Not in sets that lack a kind: their l
    # is a constant, and the gradient of a sum over nothing would be NaN.
    masked = has_both[:, None]
    negatives = (logits / negative_temp).masked_fill(masked & positive, -torch.inf)
    positives = (-logits / positive_temp).masked_fill(masked & ~positive, -torch.inf)
    losses = functional.softplus(
        negative_temp * negatives.logsumexp(1) + positive_temp * positives.logsumexp(1) + margin
    )
    return torch.where(has_both, losses, 0.0).sum() / has_positive.sum().clamp(min=1)
