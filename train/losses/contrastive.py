"""Contrastive losses: a row is drawn to its labels, or to rows that share them, and not to others.

The losses between rows are those that ABALONE compares (S2: Audibert, Gauffre, Amini, "Exploring
Contrastive Learning for Long-Tailed Multi-Label Text Classification", ECML PKDD 2024). Each is a
mean over anchors, the rows of a batch, of

    - sum over k of w_k log[ e^{s_k} / sum over m of g_m e^{s_m} ]

where k and m are the members an anchor is compared with, s their similarities over a temperature,
w the weights of those that attract. They differ in members, weights w and g, and similarity.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

TEMPERATURE = 0.1
"""Of all losses between rows, in the paper's main experiments."""
MSC_ROW_WEIGHT = 0.1
"""beta: how much a row counts against a prototype in the denominator of MSC."""

# Stands for -inf: an anchor that is alone has no other member, and the gradient of a logsumexp
# over -inf alone is not a number. e^-1e9 is zero beside any other member.
EXCLUDED = -1e9


class Members(NamedTuple):
    """Vectors that anchors are compared with, and the label set of each."""

    z: Tensor
    """Of length one, (members, size)."""
    y: Tensor
    """(members, labels) of 0 and 1."""


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


def prototype_members(prototypes: Tensor) -> Members:
    """Prototypes as members, each of length one and with its own label alone.

    prototypes: (labels, size), of any length.
    """
    label_sets = torch.eye(len(prototypes), dtype=prototypes.dtype, device=prototypes.device)
    return Members(functional.normalize(prototypes, dim=1), label_sets)


def jaccard_contrastive(
    rows: Members,
    *others: Members,
    temperature: float = TEMPERATURE,
    by_anchors: bool = False,
) -> Tensor:
    """L_Base: every other member attracts a row by the Jaccard index of their label sets.

    w_k = J(i, k) / sum over k of J(i, k). A row that shares no label with any member counts 0; the
    sum is divided by all rows, or (`by_anchors`, the released program) by those that count.

    others: members beside the batch: none for L_Base, the queue for L_BQueue, and the prototypes
    too for L_BQProto.
    """
    members = _joined(rows, *others)
    weights = _others_only(_jaccard(rows.y, members.y))
    total = weights.sum(1)
    share = weights / _nonzero(total)[:, None]
    losses = _attraction(rows.z @ members.z.T / temperature, share)
    return losses.sum() / (total > 0).sum().clamp(min=1) if by_anchors else losses.mean()


def msc(
    rows: Members,
    queue: Members,
    prototypes: Members,
    *,
    temperature: float = TEMPERATURE,
    row_weight: float = MSC_ROW_WEIGHT,
) -> Tensor:
    """L_MSC, the multi-label supervised contrastive loss that ABALONE proposes.

    Every label j of a row attracts it with the same share 1/|y_i|, whether it is frequent or rare:
    by its prototype (f = 1) and by the rows k of batch and queue that have it (f = 1/|y_i or y_k|),
    each f over their sum N(i, j). In the denominator all prototypes count 1 and rows `row_weight`.
    A row without labels counts 0.

    prototypes: see `prototype_members`, in the order of the labels.
    """
    documents = _joined(rows, queue)
    f = _others_only(1 / _nonzero(_union(rows.y, documents.y)))
    normalised = rows.y / (1 + f @ documents.y)  # 1 / N(i, j), (batch, labels)
    # A member counts once for each label that it shares with the row.
    weights = torch.cat([f * (normalised @ documents.y.T), normalised], 1)
    share = weights / _nonzero(rows.y.sum(1))[:, None]
    similarities = rows.z @ torch.cat([documents.z, prototypes.z]).T / temperature
    log_g = similarities.new_zeros(similarities.shape[1])
    log_g[: len(documents.z)] = math.log(row_weight)
    return _attraction(similarities, share, log_g).mean()


def jscl(
    rows: Members, *, temperature: float = TEMPERATURE, weigh_denominator: bool = False
) -> Tensor:
    """Jaccard similarity contrastive loss (Lin et al., 2023): log[J(i, k) e^{s_k} / sum e^{s_m}].

    Summed over the other rows k with J > 0 and divided by the batch, then averaged over it. The
    weight is inside the logarithm: it changes the value, never the gradient.

    weigh_denominator: the released program instead: log[e^{s_k} / sum over m of J(i, m) e^{s_m}],
    averaged over all other rows; a row that shares no label counts 0.
    """
    similarities, jaccard = rows.z @ rows.z.T / temperature, _jaccard(rows.y, rows.y)
    jaccard = _others_only(jaccard)
    attracts = (jaccard > 0).to(jaccard.dtype)
    log_j = jaccard.where(jaccard > 0, 1.0).log()
    if weigh_denominator:
        log_g = log_j.masked_fill(jaccard == 0, EXCLUDED)
        share = _others_only(torch.ones_like(jaccard)) / max(1, len(jaccard) - 1)
        return _attraction(similarities, share * attracts.amax(1, keepdim=True), log_g).mean()
    share = attracts / len(jaccard)
    return (_attraction(similarities, share) - (share * log_j).sum(1)).mean()


def shared_label_contrastive(rows: Members, *, temperature: float = TEMPERATURE) -> Tensor:
    """L_con (Su et al., ACL 2022): as L_Base, with distances for similarities.

    w_k is the number of labels that k shares with the row over the sum of these numbers, and s the
    negative Euclidean distance.
    """
    weights = _others_only(rows.y @ rows.y.T)
    share = weights / _nonzero(weights.sum(1))[:, None]
    # Without the shortcut over inner products, whose error under the root is large near zero.
    distances = torch.cdist(rows.z, rows.z, compute_mode="donot_use_mm_for_euclid_dist")
    return _attraction(-distances / temperature, share).mean()


def mulcon(
    z: Tensor, labels: Tensor, present: Tensor, *, temperature: float = TEMPERATURE
) -> Tensor:
    """MulCon (Dao et al., 2021): a row has a vector for each of its labels, drawn to its like.

    Vectors of the same label in other rows attract, with equal shares; the denominator is over all
    present vectors but the anchor. Averaged over the present vectors, those without a like
    counting 0. By itself it is least where a vector depends on its label alone.

    z: (vectors, size), of length one. labels: (vectors,), which label each is of; a row has at most
    one vector a label. present: (vectors,) bool; the others are padding, as are their labels.
    """
    both = present[:, None] & present
    likes = _others_only((both & (labels[:, None] == labels)).to(z.dtype))
    share = likes / _nonzero(likes.sum(1))[:, None]
    log_g = (~present).to(z.dtype) * EXCLUDED
    losses = _attraction(z @ z.T / temperature, share, log_g)
    return losses.sum() / present.sum().clamp(min=1)


def attraction_and_repulsion(rows: Members) -> tuple[Tensor, Tensor]:
    """How near rows are to those of their labels and to the others: diagnostics, no loss.

    S_att, minus the mean cosine over pairs of rows that share a label, and S_rep, the mean over
    those that share none: both are lower where rows lie as a contrastive loss wants them (S2,
    App. E, where rows have one label each). Without such pairs a value is 0.
    """
    cosines = rows.z @ rows.z.T
    alike = (_others_only(rows.y @ rows.y.T) > 0).to(cosines.dtype)
    unlike = _others_only(1 - alike)
    attraction = -(cosines * alike).sum() / _nonzero(alike.sum())
    return attraction, (cosines * unlike).sum() / _nonzero(unlike.sum())


def _attraction(similarities: Tensor, share: Tensor, log_g: Tensor | float = 0.0) -> Tensor:
    """- sum over k of share_k log[ e^{s_k} / sum over m of g_m e^{s_m} ], of each anchor.

    Members come in the order of the anchors first, so that the diagonal, an anchor itself, is
    neither k nor m.

    similarities, share: (batch, members), share 0 on the diagonal. log_g: of members, or of pairs.
    Returns (batch,).
    """
    itself = torch.zeros_like(similarities, dtype=torch.bool)
    itself.fill_diagonal_(True)
    denominator = (similarities + log_g).masked_fill(itself, EXCLUDED).logsumexp(1)
    return denominator * share.sum(1) - (similarities * share).sum(1)


def _others_only(weights: Tensor) -> Tensor:
    """Set the weight of an anchor for itself to zero; (batch, members), the batch first."""
    return weights.clone().fill_diagonal_(0)


def _joined(*groups: Members) -> Members:
    return Members(torch.cat([group.z for group in groups]), torch.cat([g.y for g in groups]))


def _jaccard(a: Tensor, b: Tensor) -> Tensor:
    """|a and b| / |a or b| of every pair of label sets, 0 of two empty ones: (of a, of b)."""
    return (a @ b.T) / _nonzero(_union(a, b))


def _union(a: Tensor, b: Tensor) -> Tensor:
    return a.sum(1)[:, None] + b.sum(1) - a @ b.T


def _nonzero(values: Tensor) -> Tensor:
    """A divisor: one in place of zero, where what is divided is zero too."""
    return values.where(values > 0, 1.0)
