"""A task-net for losses that only order the labels of a row."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from train.batches import Inputs
from train.nets.mlp import FeatureNet, TaskNet
from train.nets.text import TextEncoder


class SoftmaxNet(TaskNet):
    """Trained on its logits f, it predicts by log softmax(f + adjustment) + level.

    Such losses do not change if a row's logits all grow by the same number, so training leaves that
    number open, and no threshold fits all rows. The softmax removes it and keeps the order of the
    labels. `level` is a constant for all labels and rows; `adjustment` one for each label.
    """

    adjustment: Tensor
    level: Tensor

    def __init__(self, features: FeatureNet | TextEncoder, n_labels: int) -> None:
        super().__init__(features, n_labels)
        self.register_buffer("adjustment", torch.zeros(n_labels))
        self.register_buffer("level", torch.zeros(()))

    def finish(self, hidden: Tensor) -> Tensor:
        """Do the rest: with dropout in training, with the softmax otherwise."""
        logits = super().finish(hidden)
        if self.training:
            return logits
        return (logits + self.adjustment).log_softmax(1) + self.level

    def embed(self, x: Inputs) -> Tensor:
        """Map rows to features and two numbers more, with which inner products are the logits."""
        features = super().embed(x)
        logits = functional.linear(features, self.labels) + self.adjustment
        rest = self.level - logits.logsumexp(1, keepdim=True)
        return torch.cat([features, torch.ones_like(rest), rest], 1)

    def label_embeddings(self) -> Tensor:
        """One vector a label, its adjustment and a 1: (labels, last width + 2)."""
        extra = torch.stack([self.adjustment, torch.ones_like(self.adjustment)], 1)
        return torch.cat([self.labels, extra], 1)
