"""Contrastive losses: a row is drawn to its labels and away from all others."""

from __future__ import annotations

import torch
from torch import Tensor


def label_contrastive(similarities: Tensor, y: Tensor, *, temperature: float = 1.0) -> Tensor:
    """-1/|P| sum over true labels p of log softmax(similarities / temperature)_p, of each row.

    The softmax is over all labels, true ones included (Bai et al., ICML 2022). A row without labels
    counts 0.

    similarities: inner products of a row's embedding with every label's, (..., batch,
    labels). y: (batch, labels) of 0 and 1. Returns (..., batch).
    """
    scaled = similarities / temperature
    count = y.sum(-1)
    attraction = (scaled * y).sum(-1) / count.clamp(min=1)
    return torch.where(count > 0, scaled.logsumexp(-1) - attraction, 0.0)
