"""Losses that look at each label by itself."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def binary_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of independent labels: summed over labels, averaged over rows.

    The sum over labels is SEAL's reduction; its learning rates assume it.

    logits, targets: (batch, labels), targets in [0, 1].
    """
    losses = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return losses.sum(1).mean()
