"""Losses where each word bears one of the labels, which exclude each other.

Label sets are flat, (batch, words * labels), the labels of the first word first; a word that is not
there bears none. A logit is that of a softmax probability, log p / (1 - p), so that its sigmoid is
that probability and log p is its log-sigmoid.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from train.losses.energy import LEAST_LOG_PROBABILITY
from train.losses.samples import SparseSamples


def word_cross_entropy(logits: Tensor, truth: Tensor, n_labels: int) -> Tensor:
    """-log p of the true label: a mean over the words of a row, then over rows.

    logits, truth: (batch, words * labels).
    """
    costs = -(truth * functional.logsigmoid(logits)).sum(1)
    return (costs / _words_in(truth, n_labels)).mean()


def word_cost(cost: Tensor, truth: Tensor, n_labels: int) -> Tensor:
    """A mean over all cells (batch[, K]), of which those of absent words are 0, as one over words.

    truth: (batch, words * labels).
    """
    share = _words_in(truth, n_labels) / (truth.shape[1] // n_labels)
    return cost / (share.unsqueeze(1) if cost.dim() == 2 else share)


def _words_in(truth: Tensor, n_labels: int) -> Tensor:
    """How many words each row has, (batch,), at least 1."""
    words: Tensor = truth.unflatten(1, (-1, n_labels))
    return words.sum((1, 2)).clamp_min(1)


def relaxed_word_samples(
    logits: Tensor,
    n_labels: int,
    count: int,
    *,
    deviation: float,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw count - 1 points softmax(log p + noise) a row and append p itself; no gradient.

    logits: (batch, words * labels); returns (batch, count, words * labels).
    """
    log_p = functional.logsigmoid(logits.detach()).unflatten(1, (-1, n_labels)).unsqueeze(1)
    shape = (log_p.shape[0], count - 1, *log_p.shape[2:])
    noise = torch.randn(shape, generator=generator, device=logits.device, dtype=logits.dtype)
    drawn = (log_p + deviation * noise).softmax(-1)
    # Where there is no word, every p is 0 and no softmax of it.
    drawn = drawn * log_p.exp().sum(-1, keepdim=True)
    return torch.cat([drawn, log_p.exp()], 1).flatten(2)


class WordNoise:
    """The noise of the ranking losses: the label of each word by itself, as likely as p says.

    logits: (batch, words * labels), without a gradient.
    """

    def __init__(self, logits: Tensor, n_labels: int) -> None:
        self.log_p = functional.logsigmoid(logits).unflatten(1, (-1, n_labels))

    def candidates(
        self, truth: Tensor, count: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Put `count` drawn sets behind each row's true one: (batch, 1 + count, words * labels)."""
        probabilities = self.log_p.exp()
        reached = probabilities.cumsum(-1)  # (batch, words, labels)
        batch, words, n_labels = reached.shape
        noise = torch.rand(
            (batch, words, count), generator=generator, device=truth.device, dtype=truth.dtype
        )
        # The last label takes what rounding leaves.
        drawn = torch.searchsorted(reached, noise * reached[..., -1:]).clamp_max(n_labels - 1)
        chosen = functional.one_hot(drawn.transpose(1, 2), n_labels).to(truth.dtype)
        present = truth.unflatten(1, (words, n_labels)).sum(2)[:, None, :, None]
        return torch.cat([truth.unsqueeze(1), (chosen * present).flatten(2)], 1)

    def log_probability(self, y: Tensor | SparseSamples) -> Tensor:
        """Log P_N(y) = sum_n log p of the label of word n, each cut at -100: (batch, sets)."""
        assert isinstance(y, Tensor)  # noqa: S101 - `candidates` makes nothing else
        logs = self.log_p.clamp_min(LEAST_LOG_PROBABILITY).flatten(1)
        return torch.einsum("bkl,bl->bk", y, logs)
