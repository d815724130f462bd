"""What a label set is, task by task: all that a structured method needs to know of the task.

For losses and inference it is a flat vector in [0, 1]. A structure says what one is worth beside
the truth, how its logits are learned, and how others like it are drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from train.losses import (
    LabelNoise,
    WordNoise,
    binary_cross_entropy,
    manhattan_cost,
    relaxed_f1,
    relaxed_samples,
    relaxed_word_samples,
    soft_iou,
    word_cost,
    word_cross_entropy,
)
from train.nets.inference import unit_interval
from train.nets.tagging import at_most_one, log_odds
from train.problem import Shape


class Labels:
    """Labels of a row, each on or off by itself."""

    def value(self, y: Tensor, truth: Tensor) -> Tensor:
        """How good label sets (batch[, K], labels) are beside the truth (batch, labels), 0 to 1."""
        return relaxed_f1(y, truth)

    def cross_entropy(self, logits: Tensor, truth: Tensor) -> Tensor:
        """What logits (batch, labels) are learned by, a mean over rows."""
        return binary_cross_entropy(logits, truth)

    def noise(self, logits: Tensor) -> LabelNoise | WordNoise:
        """What draws label sets at random as these logits say, and tells how likely they were."""
        return LabelNoise(logits)

    def relaxed_samples(self, logits: Tensor, count: int, *, deviation: float) -> Tensor:
        """Points around what the logits say, and that itself last: (batch, count, labels)."""
        return relaxed_samples(logits, count, deviation=deviation)

    def cost(self, y: Tensor, truth: Tensor) -> Tensor:
        """The mean difference of label sets (batch[, K], labels) and the truth."""
        return manhattan_cost(y, truth)

    def project(self, y: Tensor) -> Tensor:
        """The nearest label sets of any points (..., labels)."""
        return unit_interval(y)

    def mistake(self, net: nn.Module, plain: Tensor, truth: Tensor) -> Tensor:
        """What a network makes of label sets and the truth, (batch, labels) each: label sets."""
        mistake: Tensor = net(torch.cat([plain, truth], 1)).sigmoid()
        return mistake


class Pixels(Labels):
    """Pixels of a mask: worth its IoU, learned by a mean over pixels."""

    def value(self, y: Tensor, truth: Tensor) -> Tensor:
        """Soft IoU of masks (batch[, K], pixels) and the truth (batch, pixels)."""
        return soft_iou(y, truth)

    def cross_entropy(self, logits: Tensor, truth: Tensor) -> Tensor:
        """Cross-entropy, a mean over pixels and rows."""
        return binary_cross_entropy(logits, truth) / logits.shape[1]

    def noise(self, logits: Tensor) -> LabelNoise:
        """As of labels; masks are always dense, for convolutions."""
        return LabelNoise(logits, dense=True)


class WordLabels(Labels):
    """Words that bear one of the labels each; the first label says that there is none."""

    def __init__(self, n_labels: int) -> None:
        self.n_labels = n_labels

    def value(self, y: Tensor, truth: Tensor) -> Tensor:
        """Relaxed F1 of labels of words but the first, `O`, which most words bear."""
        return relaxed_f1(self._without_first(y), self._without_first(truth))

    def cross_entropy(self, logits: Tensor, truth: Tensor) -> Tensor:
        """Of the true labels, a mean over the words of a row and over rows."""
        return word_cross_entropy(logits, truth, self.n_labels)

    def noise(self, logits: Tensor) -> WordNoise:
        """One label a word."""
        return WordNoise(logits, self.n_labels)

    def relaxed_samples(self, logits: Tensor, count: int, *, deviation: float) -> Tensor:
        """Of each word a point where labels sum to 1."""
        return relaxed_word_samples(logits, self.n_labels, count, deviation=deviation)

    def cost(self, y: Tensor, truth: Tensor) -> Tensor:
        """A mean over the labels of the words that a row has."""
        return word_cost(manhattan_cost(y, truth), truth, self.n_labels)

    def project(self, y: Tensor) -> Tensor:
        """Labels of a word sum to 1 at most."""
        return at_most_one(y, self.n_labels)

    def mistake(self, net: nn.Module, plain: Tensor, truth: Tensor) -> Tensor:
        """Made of each word by itself; of absent ones nothing."""
        words, true = self._words(plain), self._words(truth)
        found = log_odds(net(torch.cat([words, true], -1))).sigmoid()
        return (found * true.sum(-1, keepdim=True)).flatten(1)

    def _words(self, y: Tensor) -> Tensor:
        words: Tensor = y.unflatten(-1, (-1, self.n_labels))
        return words

    def _without_first(self, y: Tensor) -> Tensor:
        return self._words(y)[..., 1:].flatten(-2)


def structure_of(shape: Shape) -> Labels:
    """The structure of a problem's label sets."""
    if shape.tagging:
        return WordLabels(shape.n_labels)
    return Labels() if shape.image is None else Pixels()
