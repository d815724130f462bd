"""An optimiser for tables so large that a step may touch only the rows it uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from train import ranks, segments
from train.slices import slices_of


@dataclass(frozen=True)
class Borrowed:
    """Rows of a table for one step, as a tensor of their own that gets the gradient."""

    values: Tensor  # (borrowed, width)
    numbers: Tensor | None  # (borrowed,) of the rows; None: all of them, in order


class TableOptimizer:
    """Adam for networks with tables so large that a step may touch only the rows it uses.

    A table's rows are borrowed, the loss is computed with them in its place, and `step` writes
    them back. Moments of rows that are not borrowed stay as they are, as in torch's SparseAdam;
    the rate halves when the validation score stalls, as in `TaskOptimizer`. No weight decay.
    Of a table that is sliced over ranks, each holds its slice and that slice's moments.
    """

    BETAS, EPSILON = (0.9, 0.999), 1e-8

    def __init__(
        self, network: nn.Module, tables: Sequence[str], *, lr: float, clip_norm: float = torch.inf
    ) -> None:
        parameters = dict(network.named_parameters())
        self.tables = {name: parameters.pop(name) for name in tables}
        self.slices = slices_of(network)
        self.others = list(parameters.values())
        self.clip_norm = clip_norm
        self.adam = torch.optim.Adam(
            self.others, lr=lr, betas=self.BETAS, eps=self.EPSILON, fused=True
        )
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.adam, mode="max", factor=0.5, patience=5
        )
        self.steps = 0
        self.moments = {
            name: (torch.zeros_like(table), torch.zeros_like(table))
            for name, table in self.tables.items()
        }

    def borrow(self, numbers: Mapping[str, Tensor | None]) -> dict[str, Borrowed]:
        """Copy the rows that a step needs of each table, none twice; None for all of them.

        Of a sliced table, for all ranks at once, each with numbers of its own.
        """
        return {
            name: Borrowed(self._lent(name, rows).requires_grad_(), rows)
            for name, rows in numbers.items()
        }

    def _lent(self, name: str, numbers: Tensor | None) -> Tensor:
        table = self.tables[name].detach()
        if name not in self.slices:
            return _rows(table, numbers)
        if numbers is None:
            raise ValueError(f"{name} is sliced over ranks: no rank can borrow all of its rows")
        return self.slices[name].lent(table, numbers)

    @torch.no_grad()
    def step(self, loss: Tensor, borrowed: dict[str, Borrowed]) -> None:
        """Take one step down a loss that was computed with the borrowed rows."""
        leaves = [*(rows.values for rows in borrowed.values()), *self.others]
        share = ranks.weighted(torch.ones_like(loss))
        gradients = torch.autograd.grad(loss, leaves, share, materialize_grads=True)
        borrowed, gradients = self._of_all_ranks(borrowed, gradients)
        if self.clip_norm < torch.inf:
            norm = nn.utils.get_total_norm(gradients)
            kept = (self.clip_norm / norm.add(1e-6)).clamp_max(1)
            gradients = tuple(gradient.mul_(kept) for gradient in gradients)
        self.steps += 1
        for (name, rows), gradient in zip(borrowed.items(), gradients, strict=False):
            self._update(name, rows, gradient)
        for parameter, gradient in zip(self.others, gradients[len(borrowed) :], strict=True):
            parameter.grad = gradient
        self.adam.step()

    def _of_all_ranks(
        self, borrowed: dict[str, Borrowed], gradients: tuple[Tensor, ...]
    ) -> tuple[dict[str, Borrowed], tuple[Tensor, ...]]:
        """The numbers of rows that any rank borrowed, and sums of their gradients over ranks."""
        if ranks.size() == 1:
            return borrowed, gradients
        every, sums = {}, []
        for (name, rows), gradient in zip(borrowed.items(), gradients, strict=False):
            if rows.numbers is None:
                every[name], summed = rows, ranks.total(gradient)
            else:
                numbers, summed = _summed_rows(
                    ranks.concatenated(rows.numbers), ranks.concatenated(gradient)
                )
                every[name] = replace(rows, numbers=numbers)
            sums.append(summed)
        others = list(gradients[len(borrowed) :])
        ranks.sum_gradients(others)
        return every, (*sums, *others)

    def _held(self, name: str, rows: Borrowed, gradient: Tensor) -> tuple[Borrowed, Tensor]:
        """What this rank has to update of the rows of all ranks, by their places in its table."""
        numbers = rows.numbers
        if ranks.size() == 1 or numbers is None:
            return rows, gradient
        if name in self.slices:
            own = self.slices[name]
            is_held = own.holds(numbers)
            numbers, gradient = numbers[is_held] - own.first, gradient[is_held]
        return Borrowed(_rows(self.tables[name], numbers), numbers), gradient

    def _update(self, name: str, rows: Borrowed, gradient: Tensor) -> None:
        rows, gradient = self._held(name, rows, gradient)
        first_decay, second_decay = self.BETAS
        first, second = (_rows(moment, rows.numbers) for moment in self.moments[name])
        first.lerp_(gradient, 1 - first_decay)
        second.mul_(second_decay).addcmul_(gradient, gradient, value=1 - second_decay)
        scale = (1 - second_decay**self.steps) ** 0.5
        size = self.adam.param_groups[0]["lr"] * scale / (1 - first_decay**self.steps)
        values = rows.values.detach().addcdiv_(first, second.sqrt().add_(self.EPSILON), value=-size)
        for whole, part in zip(
            (self.tables[name], *self.moments[name]), (values, first, second), strict=True
        ):
            if rows.numbers is None:
                whole.copy_(part)
            else:
                whole[rows.numbers] = part

    def end_epoch(self, validation_score: float) -> None:
        """Let the rate follow the validation score."""
        self.plateau.step(validation_score)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {
            "adam": self.adam.state_dict(),
            "plateau": self.plateau.state_dict(),
            "steps": self.steps,
            "moments": self.moments,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.adam.load_state_dict(state["adam"])
        self.plateau.load_state_dict(state["plateau"])
        self.steps = state["steps"]
        for name, moments in self.moments.items():
            for moment, saved in zip(moments, state["moments"][name], strict=True):
                moment.copy_(saved)


def _summed_rows(numbers: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Add up values, (rows, width), of the same number: every number once, ascending, and sums.

    Always in the same order, or the tables of ranks would drift apart.
    """
    distinct, places = numbers.unique(return_inverse=True)
    order = segments.ascending(places, len(distinct))
    return distinct, segments.sums(values, order, segments.starts(places, len(distinct)))


def _rows(table: Tensor, numbers: Tensor | None) -> Tensor:
    return table.clone() if numbers is None else table.index_select(0, numbers)
