"""Losses of energy networks. They take scores s = -E: raising s(truth) lowers every one of them.

A label set is a flat vector in [0, 1]^labels, the truth one of 0 and 1: a caller whose labels lie
on tokens or pixels flattens those into `labels` first. Where there are several candidates a row,
they are the second dimension: (batch, K, labels), scored as (batch, K).

Formulas, reductions and what counts as a constant follow Lee et al., NeurIPS 2022 (SEAL) and,
where the paper leaves them open, the authors' program: margin losses and objectives of
inference networks are means over rows, regression and ranking are sums.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# log P is clamped here, as in SEAL's program: a sample that the noise could hardly have drawn
# must not make the loss infinite.
LEAST_LOG_PROBABILITY = -100.0
# U and I + U are clamped here, which changes nothing but 0/0: a row with a label has 1 at least,
# up to rounding, and without one I = 0.
LEAST_UNION = 0.5


def relaxed_f1(y: Tensor, truth: Tensor) -> Tensor:
    """2 I / (I + U), with I = sum_j min(y_j, truth_j) and U = sum_j max: F1 where y is 0 and 1.

    It is 0, not 0/0, where neither has a label. In segmentation `soft_iou` takes its place.

    y: (batch[, K], labels); truth: (batch, labels); returns (batch[, K]).
    """
    common, together = _overlap(y, truth)
    return 2 * common / together.clamp_min(LEAST_UNION)


def soft_iou(y: Tensor, truth: Tensor) -> Tensor:
    """I / U as in `relaxed_f1`, and 0 where neither has a label; the same shapes."""
    common, together = _overlap(y, truth)
    return common / (together - common).clamp_min(LEAST_UNION)


def manhattan_cost(y: Tensor, truth: Tensor) -> Tensor:
    """Mean of |y_j - truth_j|, the cost of the InfNet margin; shapes as in `relaxed_f1`."""
    truth = _beside(y, truth)
    # Not abs: at y = truth its gradient is 0, though y can only leave the truth at full cost.
    return (y + truth - 2 * y * truth).mean(-1)


def _overlap(y: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """I and I + U."""
    truth = _beside(y, truth)
    # With truth 0 or 1, min(y, truth) is a product, differentiable where y equals the truth too.
    return (y * truth).sum(-1), y.sum(-1) + truth.sum(-1)


def _beside(y: Tensor, truth: Tensor) -> Tensor:
    return truth.unsqueeze(1) if y.dim() > truth.dim() else truth


def ssvm_margin(truth_scores: Tensor, scores: Tensor, costs: Tensor) -> Tensor:
    """Structured hinge [cost(y) - s(truth) + s(y)]_+, averaged over rows (SPEN).

    y comes from cost-augmented inference; SPEN's cost is 1 - relaxed F1. All arguments: (batch,);
    `costs` gets no gradient.
    """
    return functional.relu(costs.detach() - truth_scores + scores).mean()


def inference_net_margin(
    truth_scores: Tensor,
    augmented_scores: Tensor,
    plain_scores: Tensor,
    costs: Tensor,
    *,
    plain_weight: float,
) -> Tensor:
    """What theta minimises: [cost(a) - s(truth) + s(a)]_+ + w [s(q) - s(truth)]_+, averaged.

    "Margin" of SEAL, with inference networks: a is the answer of the cost-augmented network, q
    that of the task-net, both constants here; cost is `manhattan_cost`, so small for few labels
    that the first hinge is often at rest.

    All tensors: (batch,); plain_weight: w; `costs` gets no gradient.
    """
    augmented = ssvm_margin(truth_scores, augmented_scores, costs)
    return augmented + plain_weight * functional.relu(plain_scores - truth_scores).mean()


def inference_net_objective(
    augmented_scores: Tensor,
    plain_scores: Tensor,
    costs: Tensor,
    cross_entropy: Tensor,
    *,
    plain_weight: float,
    cross_entropy_weight: float,
) -> Tensor:
    """What the networks behind a and q minimise: -(cost(a) + s(a) + w s(q)) + lambda cross-entropy.

    The other side of `inference_net_margin`, without the hinges; here `costs` has a gradient.

    scores, costs: (batch,), averaged over rows; cross_entropy: (), a mean over rows.
    """
    gain = augmented_scores + costs + plain_weight * plain_scores
    return cross_entropy_weight * cross_entropy - gain.mean()


def regression(scores: Tensor, values: Tensor) -> Tensor:
    """Cross-entropy of the score, as a logit, with the value in [0, 1]: summed over all (DVN).

    Values are `relaxed_f1` or `soft_iou` of what was scored and get no gradient. One candidate a
    row, the task-net's probabilities, is SEAL's "regression"; `relaxed_samples` is "regression-s".

    scores, values: (batch,) or (batch, K).
    """
    return functional.binary_cross_entropy_with_logits(scores, values.detach(), reduction="sum")


def relaxed_samples(
    logits: Tensor, count: int, *, deviation: float, generator: torch.Generator | None = None
) -> Tensor:
    """Draw count - 1 points sigmoid(logits + noise) a row and append sigmoid(logits) itself.

    The noise is normal with the given standard deviation; the result carries no gradient.

    logits: (batch, labels); returns (batch, count, labels).
    """
    centre = logits.detach().unsqueeze(1)
    noise = torch.randn(
        logits.shape[0],
        count - 1,
        logits.shape[1],
        generator=generator,
        device=logits.device,
        dtype=logits.dtype,
    )
    return torch.cat([centre + deviation * noise, centre], 1).sigmoid()


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
    """Log P_N(y) = sum_j y_j log q_j + (1 - y_j) log(1 - q_j), with q = sigmoid(logits).

    logits: (batch, labels); y: (batch, K, labels); returns (batch, K).
    """
    log_on = functional.logsigmoid(logits).clamp_min(LEAST_LOG_PROBABILITY)
    log_off = functional.logsigmoid(-logits).clamp_min(LEAST_LOG_PROBABILITY)
    # One product with the difference of both logs, instead of two with y and 1 - y.
    return torch.einsum("bkl,bl->bk", y, log_on - log_off) + log_off.sum(1, keepdim=True)


def ranking(scores: Tensor) -> Tensor:
    """Rank the truth above K samples: -log softmax(s_k) at k = 0, summed over rows.

    Where samples equal the truth, it cannot fall below log(1 + copies).

    scores: (batch, 1 + K), the truth first.
    """
    return -functional.log_softmax(scores, dim=1)[:, 0].sum()


def nce_ranking(scores: Tensor, log_noise: Tensor) -> Tensor:
    """Noise-contrastive ranking: `ranking` of s_k - log P_N(y_k); summed over rows.

    scores, log_noise: (batch, 1 + K), the truth first; `log_noise` gets no gradient.
    """
    return ranking(scores - log_noise.detach())


def task_objective(scores: Tensor, cross_entropy: Tensor, *, energy_weight: float) -> Tensor:
    """What the task-net minimises: lambda_1 E(x, sigmoid(F(x))) + cross-entropy, with E = -s.

    scores: (batch,), of the task-net's own probabilities; cross_entropy: (), a mean over rows.
    """
    return cross_entropy - energy_weight * scores.mean()


def value_task_objective(scores: Tensor, cross_entropy: Tensor, *, energy_weight: float) -> Tensor:
    """`task_objective` beside `regression`: its score is a logit, so E = -sigmoid(s), the value."""
    return task_objective(scores.sigmoid(), cross_entropy, energy_weight=energy_weight)
