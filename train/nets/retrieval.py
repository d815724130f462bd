"""A network of two towers: a row and a label are embedded, and their inner product is the score."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from train.batches import Inputs
from train.nets.mlp import Activation, FeatureNet
from train.slices import BLOCK_NUMBERS, Slice


class RetrievalNet(nn.Module):
    """Hidden features of a row times one vector a label.

    Inner products: logits are f - `offset`, one number for all labels that training sets, so that
    their sigmoids are scores; it is the last entry of a row's embedding, beside a 1 in every
    label's. Cosines: both embeddings have length 1 and logits are their cosines.

    With `label_slice` it holds the vectors of those labels alone, and has their logits.
    """

    offset: Tensor

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        widths: Sequence[int],
        *,
        dropout: float,
        activation: Activation,
        cosine: bool,
        label_slice: Slice | None = None,
    ) -> None:
        super().__init__()
        self.features = FeatureNet(n_features, widths, dropout, activation)
        self.cosine = cosine
        size = widths[-1]
        self.slices = {} if label_slice is None else {"labels": label_slice}
        n_held = n_labels if label_slice is None else len(label_slice)
        if label_slice is not None:
            _draw_past(label_slice.first, size)
        self.labels = nn.Parameter(torch.ones(n_held, size if cosine else size + 1))
        # As for a layer that `size` units feed: the number of labels should not matter.
        nn.init.uniform_(self.labels.detach()[:, :size], -(size**-0.5), size**-0.5)
        self.register_buffer("offset", torch.zeros(1))

    def forward(self, x: Inputs) -> Tensor:
        """Map rows (batch, features) to logits (batch, labels)."""
        if self.cosine:
            return functional.linear(self.embed(x), self.label_embeddings())
        # Not the product of the embeddings: the ones in them are no weights to learn.
        return functional.linear(self.features(x), self.labels[:, :-1]) - self.offset

    def embed(self, x: Inputs) -> Tensor:
        """Embed rows (batch, features): (batch, size)."""
        hidden: Tensor = self.features(x)
        if self.cosine:
            return functional.normalize(hidden)
        return torch.cat([hidden, -self.offset.expand(hidden.shape[0], 1)], 1)

    def label_embeddings(self) -> Tensor:
        """One vector a label, (labels, size)."""
        return functional.normalize(self.labels) if self.cosine else self.labels


def _draw_past(n_rows: int, size: int) -> None:
    """Leave out what the rows before a slice would draw: it begins as in the whole table."""
    block = torch.empty(max(1, BLOCK_NUMBERS // size), size)
    for first in range(0, n_rows, len(block)):
        block[: n_rows - first].uniform_()
