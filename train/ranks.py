"""Several processes that train one model, as `torchrun` starts them; alone, nothing here does more.

Each process, a rank, holds the whole model (of very large tables its part, see `slices.py`) and
takes every n-th row of a batch. What it minimises
is a mean over its rows, or the loss of the whole batch; it counts by the rank's share of the rows,
and gradients are summed over ranks before anything else is done with them. So weights change as in
one process with the same batches, and stay the same in all ranks.

    a mean over rows                      nothing to do
    a sum over rows                       `row_sum`
    a loss that compares rows             `whole` of what it compares
    a mean over something else than rows  `whole`, or a sum over `total` of their number
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from train.errors import ConfigError, UserError
from train.roll_call import RollCall

TIMEOUT = timedelta(minutes=30)
"""How long ranks wait for one that is alive: for its data, or for its share of a step."""
AGREED_STEPS = 8
"""After so many steps ranks ask each other whether to stop: it costs a message."""

Context: TypeAlias = Any  # what torch hands to a backward takes any attribute
T = TypeVar("T")


class RankLostError(UserError):
    """Another process ended, or does not answer."""


@dataclass
class _Group:
    """This process among the others."""

    rank: int = 0
    size: int = 1
    roll_call: RollCall | None = None
    batch: tuple[int, int] = (1, 1)
    """Rows of the batch at hand: of this rank, of all."""
    step: tuple[int, ...] = ()
    """Seed, epoch and number of the step at hand."""
    generators: dict[torch.device, torch.Generator] = field(default_factory=dict)


_group = _Group()


def rank() -> int:
    """The number of this process; 0 writes all files and does all the talking."""
    return _group.rank


def size() -> int:
    """How many processes train together; 1 without torchrun."""
    return _group.size


def is_first() -> bool:
    """Whether this process is the one that writes and talks."""
    return _group.rank == 0


def local_rank() -> int:
    """The number of this process on its machine: which GPU is its own."""
    return int(os.environ.get("LOCAL_RANK", "0")) if size() > 1 else 0


def restarted() -> bool:
    """Whether torchrun began these processes anew (`--max-restarts`)."""
    return size() > 1 and _attempt() != "0"


def _attempt() -> str:
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def launcher() -> list[str]:
    """The words that start as many processes again."""
    if size() == 1:
        return ["python"]
    nodes = os.environ.get("GROUP_WORLD_SIZE", "1")
    several = ["--nnodes", nodes] if nodes != "1" else []
    return ["torchrun", *several, "--nproc-per-node", os.environ.get("LOCAL_WORLD_SIZE", "1")]


@contextmanager
def joined() -> Iterator[None]:
    """Find the other processes, if torchrun started this one among several; leave them at last."""
    if not dist.is_torchelastic_launched() or int(os.environ["WORLD_SIZE"]) == 1:
        yield
        return
    # Its functions have the group that is there at their import as a default, and torch.optim asks
    # for it: then the group would outlive its end here, and its threads abort Python at exit.
    importlib.import_module("torch.distributed.nn.functional")
    found, own, count = next(rendezvous("env://", timeout=TIMEOUT))
    # Processes that are begun anew must not read where those before them listened.
    store = PrefixStore(f"labelwright/{_attempt()}", found)
    # Numbers on the host, such as whether to stop, need not wait for a GPU.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=own, world_size=count, timeout=TIMEOUT)
    _group.rank, _group.size = own, count
    _group.roll_call = RollCall(store, own, count)
    try:
        yield
    finally:
        _group.rank, _group.size, _group.roll_call = 0, 1, None
        dist.destroy_process_group()


@contextmanager
def contact() -> Iterator[None]:
    """Say which rank was lost when a message could not be exchanged."""
    try:
        yield
    except RuntimeError as error:
        assert _group.roll_call is not None  # noqa: S101 - there are messages only among several
        reason = str(error).partition("\n")[0]
        raise RankLostError(f"{_group.roll_call.missing()} ({reason})") from error


def tells(error: UserError) -> bool:
    """Whether this process is the one to tell the user about a mistake that several ranks met."""
    roll_call = _group.roll_call
    return roll_call is None or roll_call.tells(type(error).__name__)


def begin_batch(index: Tensor, *step: int) -> Tensor:
    """Take this rank's rows of a batch, and draw at random as befits the step and the rank.

    index: (rows,) row numbers of the batch. step: seed, epoch and number of the step; what is drawn
    depends on them and on the rank alone, so that a resumed run needs no state of a generator.
    """
    if size() == 1:
        return index
    if len(index) < size():
        raise ConfigError(
            f"a batch of {len(index)} rows is too small for {size()} processes: raise "
            "--batch-size, or start fewer"
        )
    own = index[rank() :: size()]
    _group.batch, _group.step = (len(own), len(index)), step
    _group.generators.clear()
    torch.manual_seed(_seed(*step, rank() + 1))
    return own


def _seed(*parts: int) -> int:
    sequence = np.random.SeedSequence([part % 2**63 for part in parts])
    return int(sequence.generate_state(1, np.uint64)[0])


def common_generator(device: torch.device) -> torch.Generator | None:
    """What draws the same numbers in every rank; None, the global one, where there is one rank."""
    if size() == 1:
        return None
    if device not in _group.generators:
        _group.generators[device] = torch.Generator(device).manual_seed(_seed(*_group.step, 0))
    return _group.generators[device]


def weighted(loss: Tensor) -> Tensor:
    """A loss times this rank's share of the rows: those of all ranks add up to the batch's."""
    own, whole = _group.batch
    return loss if size() == 1 else loss * (own / whole)


def row_sum(loss: Tensor) -> Tensor:
    """A loss that is a sum over this rank's rows, as the mean that its share is taken of."""
    own, whole = _group.batch
    return loss if size() == 1 else loss * (whole / own)


def whole(rows: Tensor) -> Tensor:
    """The rows of all ranks in the order of the batch; gradients find their way back.

    rows: (own rows, ...). Returns (rows of the batch, ...).
    """
    if size() == 1:
        return rows
    every = rows.new_zeros(_group.batch[1], *rows.shape[1:])
    every[rank() :: size()] = rows
    summed: Tensor = _Sum.apply(every)  # type: ignore[no-untyped-call]
    return summed


def on_whole_batch(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """A loss of logits and targets that compares rows, or is a mean over something else."""
    return lambda logits, targets: loss(whole(logits), whole(targets))


def whole_lists(rows: Tensor, values: Tensor) -> Tensor:
    """The values of all ranks in the order of the batch's rows.

    rows: (values,) ascending, 0 is the first of this rank; values: (values,), for example labels.
    """
    if size() == 1:
        return values
    places = concatenated(rows * size() + rank())
    return concatenated(values).index_select(0, places.argsort(stable=True))


class _Sum(torch.autograd.Function):
    """The sum over ranks; so is its gradient, as each rank has a loss of its own."""

    @staticmethod
    def forward(ctx: Context, value: Tensor) -> Tensor:
        return total(value)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> Tensor:
        return total(gradient)


def total(value: Tensor) -> Tensor:
    """The sum over ranks, as a tensor of its own, without a gradient."""
    if size() == 1:
        return value
    with contact():
        dist.all_reduce(value := value.detach().clone(memory_format=torch.contiguous_format))
    return value


def count(number: int) -> int:
    """The sum over ranks of a number that each of them knows."""
    return number if size() == 1 else int(total(torch.tensor(number)))


def concatenated(rows: Tensor) -> Tensor:
    """Those of all ranks, one rank after the other; each may have another number of them."""
    if size() == 1:
        return rows
    lengths = torch.zeros(size(), dtype=torch.int64)
    lengths[rank()] = len(rows)
    counts = total(lengths).tolist()
    padded = rows.new_zeros(max(counts), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in counts]
    with contact():
        dist.all_gather(parts, padded)
    return torch.cat([part[:own] for part, own in zip(parts, counts, strict=True)])


def backward(loss: Tensor, parameters: Iterable[nn.Parameter]) -> None:
    """Give parameters, whose gradients are empty, the gradient of all ranks' losses together."""
    parameters = list(parameters)
    weighted(loss).backward(inputs=parameters)
    if size() > 1:
        sum_gradients([p.grad for p in parameters if p.grad is not None])


@torch.no_grad()
def sum_gradients(gradients: list[Tensor]) -> None:
    """Sum gradients over ranks, in place and in one message."""
    if size() == 1 or not gradients:
        return
    bucket = total(torch.cat([gradient.flatten() for gradient in gradients]))
    for gradient, part in zip(
        gradients, bucket.split([gradient.numel() for gradient in gradients]), strict=True
    ):
        gradient.copy_(part.view_as(gradient))


def totals(sums: dict[str, Tensor]) -> dict[str, float]:
    """The sum over ranks of each number, on the host."""
    if size() == 1:
        return {name: float(value) for name, value in sums.items()}
    values = total(torch.stack([value.to("cpu", torch.float64) for value in sums.values()]))
    return dict(zip(sums, values.tolist(), strict=True))


def agree_after(step: int) -> bool:
    """Whether ranks ask each other, after that step of an epoch, if they are to stop."""
    return size() == 1 or step % AGREED_STEPS == 1


def any_of(*flags: bool) -> list[bool]:
    """Whether some rank says so, of each flag."""
    if size() == 1:
        return list(flags)
    return [count > 0 for count in total(torch.tensor(flags, dtype=torch.int32)).tolist()]


def barrier() -> None:
    """Wait until every rank has come so far."""
    if size() > 1:
        total(torch.zeros(1))


def on_first(work: Callable[[], T]) -> T:
    """What rank 0 makes of it; its mistakes are everybody's."""
    if size() == 1:
        return work()
    outcome: list[Any] = [None, None]
    if is_first():
        try:
            outcome = [work(), None]
        except UserError as error:
            outcome = [None, error]
    with contact():
        dist.broadcast_object_list(outcome, device=torch.device("cpu"))
    if outcome[1] is not None:
        raise outcome[1]
    result: T = outcome[0]
    return result


def one_by_one(work: Callable[[], T]) -> T:
    """What everybody makes of it; the first rank of a machine before the others.

    Such as reading a data set: whatever it has to download and to keep is there for the others.
    """
    try:
        found = [work()] if local_rank() == 0 else []
    finally:
        barrier()  # after a mistake too: the others are to meet it themselves
    return found[0] if found else work()


def in_turn(work: Sequence[T]) -> Sequence[T]:
    """This rank's part of work that ranks share: number rank, rank + size, ... of all."""
    return work[rank() :: size()]


def collected(parts: list[Tensor], sizes: list[int]) -> Tensor:
    """Bring together what ranks computed in turn, on the host: all rows, in order, in rank 0.

    parts: those of this rank, `in_turn`; sizes: rows of all of them. Other ranks get their own.
    """
    if size() == 1:
        return torch.cat(parts)
    if not is_first():
        own = torch.cat(parts) if parts else torch.empty(0, 0)
        if parts:
            with contact():
                dist.send(own, 0)
        return own
    found: list[Tensor] = [torch.empty(0)] * len(sizes)
    found[:: size()] = parts
    for other in range(1, size()):
        rows = sizes[other :: size()]
        if rows:
            sent = parts[0].new_empty(sum(rows), *parts[0].shape[1:])
            with contact():
                dist.recv(sent, other)
            found[other :: size()] = sent.split(rows)
    return torch.cat(found)
