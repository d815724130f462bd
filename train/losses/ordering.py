"""Losses that rank a row's true labels above the others: softmax, WARP, RML.

WARP and RML sum over all pairs of a true and a false label. No matrix of pairs is made: in a row
sorted by score, the false labels that come too close to a true one are the first so many, so sums
over them are prefix sums. Time is that of a sort.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from train.losses.contrastive import label_contrastive

SCALE = 1 / 20
"""Of WARP and RML in the program of RML's authors."""
RAMP_START, RAMP_RELIEF = -0.8, 0.9
"""A mistake larger than 1.8 costs only a tenth of what is beyond: its label may be wrong."""


def multi_label_softmax(logits: Tensor, targets: Tensor) -> Tensor:
    """-1/|P| sum over true labels p of log softmax(logits)_p, mean over rows that have a label.

    logits, targets: (batch, labels), targets 0 or 1. 0 where no row has a label.
    """
    losses = label_contrastive(logits, targets)
    return losses.sum() / (targets > 0).any(1).sum().clamp(min=1)


def warp(logits: Tensor, targets: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Weighted approximate-rank pairwise loss (Gong et al., ICLR 2014), mean over rows, / 20.

        sum over true p and false n of weight_p [1 - x_p + x_n]_+

    The false labels are looked at in a random order until one violates 1 - x_p + x_n <= 0. With t
    looks (one more than there are, if none does) the rank of p is estimated as (labels - 1) / t,
    rounded, halves up, and weight_p = 1 + 1/2 + ... + 1/rank. The weight is a constant to the
    gradient.

    logits, targets: (batch, labels), targets 0 or 1. generator: of the order, on the logits'
    device; None: the global one.
    """
    pairs = _Pairs.of(logits, targets)
    weights = _warp_weights(pairs, generator)
    return SCALE * (weights * pairs.hinge_sums(1.0)).sum(1).mean()


def rml(
    logits: Tensor,
    targets: Tensor,
    *,
    label_weight: float = 5.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Robust multi-label ranking with all labels given (Cevikalp et al.), mean over rows, / 20.

        sum over p, n of weight_p ramp(x_p - x_n)  +  label_weight sum over labels of ramp(+-x)
        ramp(m) = [1 - m]_+ - 0.9 [-0.8 - m]_+,    + for a true label, - for a false one

    `warp` with a hinge that grows slowly beyond 1.8, so that wrong labels do less harm, plus the
    same of each label by itself, which puts the border between true and false near 0.

    logits, targets, generator: as in `warp`.
    """
    pairs = _Pairs.of(logits, targets)
    ranked = pairs.hinge_sums(1.0) - RAMP_RELIEF * pairs.hinge_sums(RAMP_START)
    margin = logits * (2 * targets - 1)
    alone = (1 - margin).clamp(min=0) - RAMP_RELIEF * (RAMP_START - margin).clamp(min=0)
    weights = _warp_weights(pairs, generator)
    return SCALE * (weights * ranked + label_weight * alone).sum(1).mean()


@dataclass(frozen=True)
class _Pairs:
    """A batch's logits with, for each row, the false ones from the highest to the lowest."""

    logits: Tensor  # (batch, labels)
    positive: Tensor  # (batch, labels) bool
    negated: Tensor  # (batch, labels): -x_n, ascending; then inf in the places of true labels

    @staticmethod
    def of(logits: Tensor, targets: Tensor) -> _Pairs:
        positive = targets > 0.5
        negated = (-logits).masked_fill(positive, torch.inf).sort(1).values
        return _Pairs(logits, positive, negated)

    def violators(self, margin: float) -> Tensor:
        """How many false labels have margin - x_p + x_n > 0, for each label as p: (batch, labels).

        They are the first so many in `negated`.
        """
        bounds = (margin - self.logits).detach().contiguous()
        return torch.searchsorted(self.negated.detach().contiguous(), bounds)

    def hinge_sums(self, margin: float) -> Tensor:
        """Sum over false labels n of [margin - x_p + x_n]_+; 0 where p is not true."""
        counts = self.violators(margin)
        finite = torch.where(self.negated.isinf(), 0.0, self.negated)
        sums = _first(finite.cumsum(1), counts, if_none=0.0)
        return torch.where(self.positive, counts * (margin - self.logits) - sums, 0.0)


def _warp_weights(pairs: _Pairs, generator: torch.Generator | None) -> Tensor:
    """weight_p of each label as p, (batch, labels).

    All true labels of a row share one random order of the false ones: each t has the distribution
    it would have by itself, and since the loss is linear in the weights, it and its gradient have
    the same expectation. The first violator in that order is the one with the lowest place; as the
    violators are those with the highest scores, that is a running minimum in the order of scores.
    """
    n_labels = pairs.logits.shape[1]
    is_negative = ~pairs.negated.isinf()
    drawn = torch.rand(pairs.logits.shape, generator=generator, device=pairs.logits.device)
    # The places 1, 2, ... of the false labels in the random order: those of true ones come last.
    places = drawn.masked_fill(~is_negative, torch.inf).argsort(1).argsort(1) + 1
    looks = _first(
        places.cummin(1).values,
        pairs.violators(1.0),
        if_none=is_negative.sum(1, keepdim=True) + 1,
    )
    ranks = (2 * (n_labels - 1) + looks) // (2 * looks)
    numbers = torch.arange(1, n_labels + 1, device=ranks.device, dtype=pairs.logits.dtype)
    harmonic = torch.nn.functional.pad(numbers.reciprocal().cumsum(0), (1, 0))
    return harmonic[ranks]


def _first(prefixes: Tensor, counts: Tensor, *, if_none: float | Tensor) -> Tensor:
    """Of each row's prefix values those of the given lengths, (batch, labels)."""
    found = prefixes.gather(1, (counts - 1).clamp(min=0))
    return torch.where(counts > 0, found, if_none)
