"""Label sets by their positive labels alone: the noise of the ranking losses, where few are on.

A set drawn from a task-net holds some ten labels out of thousands. As a dense (rows, sets, labels)
tensor it costs a random number and a row of M for every zero; here, for every one.
The distribution is the same, and so are the values for the same sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from train import segments
from train.losses.energy import LEAST_LOG_PROBABILITY, bernoulli_samples, log_noise_probability

# Where -log(1 - q), nearly the share of labels that are on, is larger on average, dense is faster.
GREATEST_RATE = 0.12

# Up to this many labels in all sets, an accelerator is dense without asking: it would have to wait
# for sizes, and multiplies zeros faster.
GREATEST_ON_ACCELERATOR = 2**26

Context: TypeAlias = Any  # what torch hands to a backward takes any attribute


@dataclass(frozen=True)
class SparseSamples:
    """The ones of a (rows, sets, labels) tensor of 0 and 1, in the order of sets and of labels.

    Set j of row i has the number i * sets + j; cell l of row i has the number i * labels + l.
    """

    shape: tuple[int, int, int]
    labels: Tensor  # (ones,), by set
    cells: Tensor  # (ones,), by set
    set_starts: Tensor  # (rows * sets + 1,): where each begins in `labels` and `cells`
    sets: Tensor  # (ones,), by label
    label_starts: Tensor  # (labels + 1,): where each begins in `sets`

    @classmethod
    def of_ones(
        cls, shape: tuple[int, int, int], cells: Tensor, positions: Tensor
    ) -> SparseSamples:
        """Order the ones, given by their cell and their set's position in the row, none twice."""
        rows, per_row, n_labels = shape
        row = cells.div(n_labels, rounding_mode="floor")
        sets = row * per_row + positions
        labels = cells - row * n_labels
        by_set = segments.ascending(sets, rows * per_row)
        by_label = segments.ascending(labels, n_labels)
        return cls(
            shape=shape,
            labels=labels.index_select(0, by_set),
            cells=cells.index_select(0, by_set),
            set_starts=segments.starts(sets, rows * per_row),
            sets=sets.index_select(0, by_label),
            label_starts=segments.starts(labels, n_labels),
        )

    @classmethod
    def of_dense(cls, y: Tensor) -> SparseSamples:
        """Take the ones of a (rows, sets, labels) tensor."""
        rows, per_row, n_labels = y.shape
        row, position, label = y.nonzero(as_tuple=True)
        return cls.of_ones((rows, per_row, n_labels), row * n_labels + label, position)

    def to_dense(self, dtype: torch.dtype) -> Tensor:
        """Return the (rows, sets, labels) tensor."""
        return self.sum_over_labels(torch.eye(self.shape[2], dtype=dtype, device=self.sets.device))

    def sum_over_labels(self, table: Tensor) -> Tensor:
        """Y T for T = `table`, (labels, d): the sum of each set's rows of it, (rows, sets, d)."""
        sums: Tensor = _SumOverLabels.apply(table, self)  # type: ignore[no-untyped-call]
        return sums

    def sum_over_cells(self, values: Tensor) -> Tensor:
        """Sum each row's `values`, (rows, labels), over the labels of its sets: (rows, sets)."""
        ones = values.flatten().index_select(0, self.cells)
        return torch.segment_reduce(ones, "sum", offsets=self.set_starts).view(self.shape[:2])

    def sum_of_products(self, hidden: Tensor, table: Tensor) -> Tensor:
        """Sum `table`'s rows, (labels, d), times the row's `hidden`, (rows, d): (rows, sets)."""
        # All products in one, where the sets touch a good part of them.
        if len(self.cells) > self.shape[0] * self.shape[2] / 4:
            return self.sum_over_cells(functional.linear(hidden, table))
        sums: Tensor = _SumOfProducts.apply(hidden, table, self)  # type: ignore[no-untyped-call]
        return sums


class _SumOverLabels(torch.autograd.Function):
    """Y T; the gradient of T is Y^T G, the same kind of sum in the order of labels."""

    @staticmethod
    def forward(ctx: Context, table: Tensor, samples: SparseSamples) -> Tensor:
        ctx.samples = samples
        # Detached: for a gradient of its own it would do more.
        sums = segments.sums(table.detach(), samples.labels, samples.set_starts)
        return sums.view(*samples.shape[:2], -1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None]:
        by_set = gradient.reshape(-1, gradient.shape[-1])
        return segments.sums(by_set, ctx.samples.sets, ctx.samples.label_starts), None


class _SumOfProducts(torch.autograd.Function):
    """(Y T) h; the gradient of T sums rows of h, few enough to stay in the cache."""

    @staticmethod
    def forward(ctx: Context, hidden: Tensor, table: Tensor, samples: SparseSamples) -> Tensor:
        sums = segments.sums(table.detach(), samples.labels, samples.set_starts)
        sums = sums.view(*samples.shape[:2], -1)
        ctx.save_for_backward(hidden, sums)
        ctx.samples = samples
        return (hidden.unsqueeze(1) @ sums.transpose(1, 2)).squeeze(1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        hidden, sums = ctx.saved_tensors
        samples = ctx.samples
        rows = samples.sets.div(samples.shape[1], rounding_mode="floor")
        weights = gradient.flatten().index_select(0, samples.sets)
        of_hidden = (gradient.unsqueeze(1) @ sums).squeeze(1)
        return of_hidden, segments.sums(hidden, rows, samples.label_starts, weights), None


class LabelNoise:
    """The noise of the ranking losses: each label by itself, with probability q = sigmoid(logit).

    logits: (rows, labels), without a gradient. dense: whether sets are dense however few are on.
    """

    def __init__(self, logits: Tensor, *, dense: bool = False) -> None:
        self.logits, self.dense = logits, dense
        # -log(1 - q), cut where the logs of probabilities are.
        self.rates = functional.softplus(logits).clamp_max_(-LEAST_LOG_PROBABILITY)

    def candidates(
        self, truth: Tensor, count: int, generator: torch.Generator | None = None
    ) -> Tensor | SparseSamples:
        """Put `count` drawn sets behind each row's true one, `truth` (rows, labels) of 0 and 1.

        Returns (rows, 1 + count, labels), sparse where few labels are to be expected.
        """
        if self._is_dense(count):
            drawn = bernoulli_samples(self.logits.sigmoid(), count, generator)
            return torch.cat([truth.unsqueeze(1), drawn], 1)
        cells, positions = self.draw(count, generator)
        true_cells = truth.flatten().nonzero().squeeze(1).to(cells.dtype)
        return SparseSamples.of_ones(
            (truth.shape[0], 1 + count, truth.shape[1]),
            torch.cat([true_cells, cells]),
            torch.cat([torch.zeros_like(true_cells), positions + 1]),
        )

    def _is_dense(self, count: int) -> bool:
        small = self.logits.numel() * count <= GREATEST_ON_ACCELERATOR
        if self.dense or (small and not self.logits.is_cpu):
            return True
        # So written that rates which are no numbers any more are dense, too.
        return not self.rates.mean() <= GREATEST_RATE

    def draw(self, count: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw `count` sets a row; return the cells that are on and their sets' positions.

        Points are strewn on a line as by a Poisson process, where each (row, label, set) owns an
        interval in which -log(1 - q) points are to be expected. It stays free of them with
        probability 1 - q, whatever happens elsewhere: so the intervals that are hit are exactly
        independent Bernoulli samples, for one random number a point, about one point a positive.
        """
        rates = self.rates.flatten()
        ends = rates.cumsum(0, dtype=torch.float64)
        places = _points(ends[-1], count, generator)
        cells = _owners(ends, places).to(_index_type(len(rates) * count))
        share = places.sub_(ends.index_select(0, cells)).div_(rates.index_select(0, cells)).add_(1)
        positions = share.mul_(count).to(cells.dtype).clamp_(0, count - 1)
        # Ascending, so that the hits of one interval lie side by side.
        hits = torch.unique_consecutive(cells * count + positions)
        cells = hits.div(count, rounding_mode="floor")
        return cells, hits - cells * count

    def log_probability(self, y: Tensor | SparseSamples) -> Tensor:
        """Log P_N(y) of label sets (rows, sets, labels), each log cut at -100: (rows, sets)."""
        if isinstance(y, Tensor):
            return log_noise_probability(self.logits, y)
        # A label that is on brings log q - log(1 - q), which is its logit.
        gains = self.logits.clamp(LEAST_LOG_PROBABILITY, -LEAST_LOG_PROBABILITY)
        return y.sum_over_cells(gains) - self.rates.sum(1, keepdim=True)


def _points(length: Tensor, density: int, generator: torch.Generator | None) -> Tensor:
    """Places of a Poisson process on [0, length), `density` to the unit, ascending."""
    count = int(torch.poisson(length * density, generator))
    noise = torch.rand(count + 1, generator=generator, device=length.device, dtype=length.dtype)
    sums = noise.neg_().log1p_().cumsum(0)
    # Rounding must not reach the end, behind which there is no interval.
    last = torch.nextafter(length, torch.zeros_like(length))
    return sums[:-1].mul_(length / sums[-1]).clamp_max_(last)


def _owners(ends: Tensor, places: Tensor) -> Tensor:
    """Return the interval of each place, given where intervals end; both ascending."""
    if ends.is_cpu:
        # numpy goes on from the last place found, torch begins anew.
        return torch.from_numpy(np.searchsorted(ends.numpy(), places.numpy(), side="right"))
    return torch.searchsorted(ends, places, right=True)


def _index_type(end: int) -> torch.dtype:
    return torch.int32 if end <= 2**31 else torch.int64
