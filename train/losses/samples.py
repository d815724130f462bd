"""Label sets by their positive labels alone, for sampling and scoring them where few labels are on.

A set drawn from a task-net holds some ten labels out of thousands. As a dense (rows, sets, labels)
tensor it costs a random number and a column of M for every zero; here, for every one.
The distribution is the same, and so are the values for the same sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from train.losses.energy import LEAST_LOG_PROBABILITY

# An interval of this length stays free of points less often than rounding errors occur.
GREATEST_RATE = 40.0


@dataclass(frozen=True)
class SparseSamples:
    """The ones of a (rows, sets, labels) tensor of 0 and 1, in the order of sets and of labels.

    Set j of row i has the number i * sets + j; cell l of row i has the number i * labels + l.
    """

    shape: tuple[int, int, int]
    labels: Tensor  # (ones,), by set
    cells: Tensor  # (ones,), by set
    set_starts: Tensor  # (rows * sets + 1,), where each begins in `labels` and `cells`
    sets: Tensor  # (ones,), by label
    label_starts: Tensor  # (labels + 1,), where each begins in `sets`

    @classmethod
    def of_ones(cls, shape: tuple[int, int, int], cells: Tensor, positions: Tensor) -> SparseSamples:
        """Order the ones, given by cell and by position of their set in the row, none twice."""
        rows, per_row, n_labels = shape
        row = cells.div(n_labels, rounding_mode="floor")
        sets = row.mul(per_row).add_(positions)
        labels = torch.sub(cells, row, alpha=n_labels)
        by_set = _order(sets, rows * per_row)
        return cls(
            shape=shape,
            labels=labels.index_select(0, by_set),
            cells=cells.index_select(0, by_set),
            set_starts=_starts(sets, rows * per_row),
            sets=sets.index_select(0, _order(labels, n_labels)),
            label_starts=_starts(labels, n_labels),
        )

    def to_dense(self, dtype: torch.dtype) -> Tensor:
        """Return the (rows, sets, labels) tensor."""
        return self.sum_over_labels(torch.eye(self.shape[2], dtype=dtype, device=self.sets.device))

    def sum_over_labels(self, table: Tensor) -> Tensor:
        """Y T for T = `table`, (labels, d): the sum of each set's rows of it, (rows, sets, d)."""
        return _SumOverLabels.apply(table, self).view(*self.shape[:2], -1)

    def sum_over_cells(self, values: Tensor) -> Tensor:
        """Sum each row's `values`, (rows, labels), over the labels of its sets: (rows, sets)."""
        return self.sum_over_ones(values.reshape(-1).index_select(0, self.cells))

    def sum_over_ones(self, values: Tensor) -> Tensor:
        """Sum one value a one, in the order of `cells`, over each set: (rows, sets)."""
        return torch.segment_reduce(values, "sum", offsets=self.set_starts).view(self.shape[:2])


def _order(keys: Tensor, end: int) -> Tensor:
    # Integers are sorted a byte at a time: the narrower, the faster.
    return keys.to(torch.int16 if end < 2**15 else torch.int32).argsort(stable=True)


def _starts(keys: Tensor, end: int) -> Tensor:
    return functional.pad(torch.bincount(keys, minlength=end).cumsum(0), (1, 0))


class _SumOverLabels(torch.autograd.Function):
    """Y T; the gradient of T is Y^T G, the same kind of sum in the order of labels."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, samples: SparseSamples) -> Tensor:
        ctx.samples = samples
        return functional.embedding_bag(
            samples.labels, table.detach(), samples.set_starts, mode="sum", include_last_offset=True
        )

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        samples = ctx.samples
        of_table = functional.embedding_bag(
            samples.sets, gradient, samples.label_starts, mode="sum", include_last_offset=True
        )
        return of_table, None


class LabelNoise:
    """Each label by itself with probability sigmoid(logit): the noise of the ranking loss.

    logits: (rows, labels).
    """

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        # -log(1 - q)
        self.rates = functional.softplus(logits)

    def draw(self, count: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        rates = self.rates.flatten().clamp_max(GREATEST_RATE).double()
        ends = rates.cumsum(0)
        places = _points(ends[-1] * count, generator).div_(count)
        cells = torch.searchsorted(ends, places, right=True)
        share = places.sub_(ends.index_select(0, cells)).div_(rates.index_select(0, cells)).add_(1)
        positions = share.mul_(count).long().clamp_(0, count - 1)
        hits = torch.unique_consecutive(positions.add_(cells.mul_(count)))
        cells = hits.div(count, rounding_mode="floor")
        return cells, hits.sub_(cells, alpha=count)

    def candidates(self, truth, count, generator=None):
        rows, n_labels = truth.shape
        cells, positions = self.draw(count, generator)
        true_cells = truth.flatten().nonzero().squeeze(1)
        cells = torch.cat([true_cells, cells])
        positions = torch.cat([torch.zeros_like(true_cells), positions.add_(1)])
        return SparseSamples.of_ones((rows, 1 + count, n_labels), cells, positions)

    def log_probability(self, samples):
        odds = self.logits.clamp(LEAST_LOG_PROBABILITY, -LEAST_LOG_PROBABILITY)
        none = self.rates.clamp_max(-LEAST_LOG_PROBABILITY).sum(1, keepdim=True)
        return samples.sum_over_cells(odds) - none


def _points(length: Tensor, generator: torch.Generator | None) -> Tensor:
    """Places of a Poisson process of rate 1 on [0, length), ascending."""
    count = int(torch.poisson(length, generator))
    noise = torch.rand(count + 1, generator=generator, device=length.device, dtype=length.dtype)
    sums = noise.neg_().log1p_().cumsum(0)
    last = torch.nextafter(length, torch.zeros_like(length))
    return sums[:-1].mul_(length / sums[-1]).clamp_max_(last)
