"""What a label set is, task by task: all that a structured method needs to know of the task.

For losses and inference it is a flat vector in [0, 1]. A structure says what one is worth beside
the truth, how its logits are learned, and how others like it are drawn.
"""

from __future__ import annotations

from torch import Tensor

from train.losses import (
    LabelNoise,
    binary_cross_entropy,
    relaxed_f1,
    relaxed_samples,
    soft_iou,
)
from train.problem import Shape


class Labels:
    """Labels of a row, each on or off by itself."""

    def value(self, y: Tensor, truth: Tensor) -> Tensor:
        """How good label sets (batch[, K], labels) are beside the truth (batch, labels), 0 to 1."""
        return relaxed_f1(y, truth)

    def cross_entropy(self, logits: Tensor, truth: Tensor) -> Tensor:
        """What logits (batch, labels) are learned by, a mean over rows."""
        return binary_cross_entropy(logits, truth)

    def noise(self, logits: Tensor) -> LabelNoise:
        """What draws label sets at random as these logits say, and tells how likely they were."""
        return LabelNoise(logits)

    def relaxed_samples(self, logits: Tensor, count: int, *, deviation: float) -> Tensor:
        """Points around what the logits say, and that itself last: (batch, count, labels)."""
        return relaxed_samples(logits, count, deviation=deviation)


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


def structure_of(shape: Shape) -> Labels:
    """The structure of a problem's label sets."""
    return Labels() if shape.image is None else Pixels()
