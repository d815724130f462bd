"""Losses that look at each label by itself: summed over labels, averaged over rows.

The sum over labels is SEAL's reduction and its learning rates assume it. Papers that average over
all cells minimise the same thing divided by the number of labels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def binary_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of independent labels: summed over labels, averaged over rows.

    The sum over labels is SEAL's reduction; its learning rates assume it.

    logits, targets: (batch, labels), targets in [0, 1].
    """
    losses = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return losses.sum(1).mean()


def focal(logits: Tensor, targets: Tensor, *, gamma: float = 2.0) -> Tensor:
    """-y (1-p)^gamma log p - (1-y) p^gamma log(1-p), p = sigmoid (Lin et al., ICCV 2017).

    Cells that are right already weigh less; gamma 0 is the cross-entropy. It is `asymmetric` with
    one gamma and no shift.

    logits, targets: (batch, labels), targets in [0, 1].
    """
    return asymmetric(logits, targets, positive_gamma=gamma, negative_gamma=gamma, shift=0.0)


def asymmetric(
    logits: Tensor,
    targets: Tensor,
    *,
    positive_gamma: float = 1.0,
    negative_gamma: float = 4.0,
    shift: float = 0.05,
    detach_weight: bool = False,
) -> Tensor:
    """Focal loss with a gamma for each kind of cell (Ridnik et al., ICCV 2021), Section 2.

        -y (1-p)^g+ log p - (1-y) q^g- log(1-q),   p = sigmoid, q = max(p - shift, 0)

    Only a false label's probability is shifted: one below the shift costs nothing and gets no
    gradient. `detach_weight`: the powers are constants to the gradient, as in the class with which
    the authors trained.

    logits, targets: (batch, labels), targets in [0, 1]. Works on logits alone: no logarithm is
    clamped.
    """
    missed = functional.logsigmoid(-logits)  # log(1 - p)
    weight = (positive_gamma * missed).exp()
    positive = -functional.logsigmoid(logits) * (weight.detach() if detach_weight else weight)
    return (targets * positive + (1 - targets) * _negative(
        logits, negative_gamma, shift, detach_weight=detach_weight
    )).sum(1).mean()  # fmt: skip


def _negative(logits: Tensor, gamma: float, shift: float, *, detach_weight: bool) -> Tensor:
    """-q^gamma log(1-q) of each cell; 0, as is its gradient, where q is 0."""
    probability = logits.sigmoid()
    costs = probability > shift
    # Any probability will do for the cells without cost; a power of 0 might have no slope.
    shifted = torch.where(costs, probability - shift, 0.5)
    # 1 - q is at least the shift; without one it vanishes where the logit does not.
    log_rest = functional.logsigmoid(-logits) if shift == 0 else torch.log1p(-shifted)
    weight = shifted**gamma
    return torch.where(costs, -log_rest * (weight.detach() if detach_weight else weight), 0.0)
