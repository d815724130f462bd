"""Networks over words, each of which bears one of the labels; rows are a `WordBatch`.

Both are those of SEAL's semantic role labelling (Lee et al., NeurIPS 2022). A label set is flat,
(batch, words * labels), the labels of the first word first. The logit of a label is that of its
softmax probability among the labels of its word, log p / (1 - p), so that the sigmoid of it, here
as everywhere, is the probability. Where a row has no word any more, every label is all but
impossible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from train.batches import WordBatch
from train.nets.inference import GradientInference
from train.nets.text import TextEncoder
from train.problem import EncoderShape

ATTENTION_DROPOUT = 0.1
ABSENT = -100.0
"""The logit of every label where there is no word."""
LONGEST_WAVE = 1e4


class WordVectors(nn.Module):
    """T(x) for words: vectors (batch, words, width) of the token each of them begins with.

    The tokens of the predicate are marked by a vector that is added to theirs.
    """

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.encoder = TextEncoder(shape)
        self.width = shape.width
        self.predicate = nn.Parameter(torch.empty(shape.width))
        nn.init.normal_(self.predicate, std=0.02)

    def forward(self, x: WordBatch) -> Tensor:
        """Map rows to the vectors of their words."""
        marks = x.predicate_mask.unsqueeze(-1) * self.predicate  # (batch, length, width)
        hidden = self.encoder.token_vectors(x, marks)
        # Padding takes the first token, and is left out by whoever uses it.
        places = (x.word_pieces - 1).clamp_min(0).unsqueeze(-1).expand(-1, -1, self.width)
        return hidden.gather(1, places)


class WordTaskNet(nn.Module):
    """F(x): vectors of words times one vector a label."""

    def __init__(self, words: WordVectors, n_labels: int) -> None:
        super().__init__()
        self.words = words
        self.labels = nn.Parameter(torch.empty(n_labels, words.width))
        nn.init.xavier_uniform_(self.labels)

    def forward(self, x: WordBatch) -> Tensor:
        """Map rows to logits (batch, words * labels)."""
        logits = log_odds(functional.linear(self.words(x), self.labels))
        present = (x.word_pieces > 0).unsqueeze(-1)
        return logits.masked_fill(~present, ABSENT).flatten(1)

    def begin(self, x: WordBatch) -> WordBatch:
        """Do what lies before any dropout: nothing, it begins with the token vectors."""
        return x

    def finish(self, x: WordBatch) -> Tensor:
        """Do the rest."""
        logits: Tensor = self(x)
        return logits


def log_odds(logits: Tensor) -> Tensor:
    """Log p / (1 - p) of p = softmax(logits) over the last axis, exact for p near 1 too.

    Only the first of the best labels can have p above 1/2; of the others, 1 - p loses nothing.
    """
    best = functional.one_hot(logits.argmax(-1), logits.shape[-1]).bool()
    others = torch.logsumexp(logits.masked_fill(best, -math.inf), -1, keepdim=True)
    log_p = functional.log_softmax(logits, -1)
    # Of the best one, p may be 1: the branch not taken must not have an infinite gradient.
    log_not_p = torch.log1p(-log_p.masked_fill(best, -math.inf).exp())
    return torch.where(best, logits - others, log_p - log_not_p)


class WordEnergy(nn.Module):
    """s(x, y) = sum_n sum_j y_nj (b_j . T(x)_n) + sum_n max_j A(y)_nj, for y in [0, 1].

    A is self-attention over the labels of the words, with one head and sinusoidal positions. As in
    the authors' program, products are divided by the root of the number of labels, not of `units`.
    """

    def __init__(self, words: WordVectors, n_labels: int, units: int) -> None:
        super().__init__()
        self.words, self.n_labels = words, n_labels
        self.labels = nn.Parameter(torch.empty(n_labels, words.width))  # b
        self.asking = nn.Linear(n_labels, 3 * units)  # queries, keys and values
        self.answer = nn.Linear(units, n_labels)
        nn.init.xavier_uniform_(self.labels)

    def forward(self, x: WordBatch, y: Tensor) -> Tensor:
        """Score label sets `y`, (batch[, K], words * labels), for rows x: (batch[, K])."""
        return self.at(x)(y)

    def at(self, x: WordBatch) -> Callable[[Tensor], Tensor]:
        """Bind the rows, and the weights as they are now: inference calls with copies of them."""
        present = x.word_pieces > 0  # (batch, words)
        local = functional.linear(self.words(x), self.labels) * present.unsqueeze(-1)
        positions = sinusoids(present.shape[1], self.n_labels, local)
        weights = [*self.asking.parameters(), *self.answer.parameters()]

        def score(y: Tensor) -> Tensor:
            sets = y if y.dim() == 3 else y.unsqueeze(1)
            marks = sets.unflatten(2, (-1, self.n_labels))  # (batch, K, words, labels)
            scores = torch.einsum("bknl,bnl->bk", marks, local)
            scores = scores + self._joint(marks + positions, present, weights)
            return scores if y.dim() == 3 else scores.squeeze(1)

        return score

    def _joint(self, marks: Tensor, present: Tensor, weights: list[Any]) -> Tensor:
        """The second sum, (batch, K)."""
        asked = functional.linear(marks, *weights[:2])
        query, key, value = asked.chunk(3, -1)  # (batch, K, words, units) each
        products = query @ key.transpose(2, 3) / math.sqrt(self.n_labels)
        products = products.masked_fill(~present[:, None, None, :], -math.inf)
        shares = functional.dropout(products.softmax(-1), ATTENTION_DROPOUT, self.training)
        answers = functional.linear(shares @ value, *weights[2:]).amax(-1)
        return (answers * present.unsqueeze(1)).sum(-1)


def sinusoids(length: int, width: int, like: Tensor) -> Tensor:
    """Sines, then cosines, of waves from 2 pi to 2 pi 10,000 words, (length, width)."""
    count = width // 2
    steps = torch.arange(count, device=like.device, dtype=like.dtype) / max(1, count - 1)
    places = torch.arange(length, device=like.device, dtype=like.dtype)
    angles = places.unsqueeze(1) * LONGEST_WAVE**-steps
    return functional.pad(torch.cat([angles.sin(), angles.cos()], 1), (0, width % 2))


def at_most_one(y: Tensor, n_labels: int) -> Tensor:
    """The nearest label sets in which the labels of a word are positive and sum to 1 at most.

    y: (..., words * labels). By the sorted values: what exceeds 1 is taken from all that stay
    positive, in equal parts.
    """
    words: Tensor = y.unflatten(-1, (-1, n_labels)).clamp_min(0)
    falling = words.sort(dim=-1, descending=True).values
    ranks = torch.arange(1, n_labels + 1, device=y.device, dtype=y.dtype)
    excess = (falling.cumsum(-1) - 1) / ranks
    count = (falling > excess).sum(-1, keepdim=True)
    level = excess.gather(-1, count - 1).clamp_min(0)
    return (words - level).clamp_min(0).flatten(-2)


class WordDescent(GradientInference):
    """Gradient-based inference over labels of words; it may begin with any set of one word's."""

    def _start(self, x: Any) -> Tensor:  # noqa: ANN401 - see `GradientInference`
        start = super()._start(x)
        if isinstance(self.start, nn.Module):
            return start
        present = (x.word_pieces > 0).to(start.dtype)  # (batch, words)
        return torch.einsum("bsl,bn->bsnl", start, present).flatten(2)
