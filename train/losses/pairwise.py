"""Losses on pairs of labels: a true label should score above a false one."""

from __future__ import annotations

from torch import Tensor


def exponential_ranking(probabilities: Tensor, y: Tensor, *, sharpness: float = 5.0) -> Tensor:
    """Mean of exp(-sharpness (p_t - p_f)) over a row's pairs of a true label t and a false one f.

    The rank loss of C2AE (Yeh et al., AAAI 2017) and MPVAE (Bai et al., IJCAI 2020). It factorises,
    so that the pairs are never formed: mean_t exp(-sharpness p_t) times mean_f exp(sharpness p_f).
    A row with all or no labels has no pair and counts 0, with gradients of 0.

    probabilities: (..., batch, labels); y: (batch, labels) of 0 and 1. Returns (..., batch).
    """
    is_false = 1 - y
    true = ((-sharpness * probabilities).exp() * y).sum(-1) / y.sum(-1).clamp(min=1)
    false = ((sharpness * probabilities).exp() * is_false).sum(-1) / is_false.sum(-1).clamp(min=1)
    return true * false
