"""Train every method a little, alone or in several ranks, and keep what came of it.

`python some_ranks.py FILE` and `torchrun --nproc-per-node 2 some_ranks.py FILE` must give the same.
What is drawn at random for the rows of a batch is made the same, too: every rank draws for the
whole batch and takes what its own rows get.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from conftest import small_problem
from test_every_method import STEPPED, VARIANTS, StepCounter, small_config
from torch.utils._python_dispatch import TorchDispatchMode

from train import methods, ranks
from train.loop import Position, cpu_weights, fit, seed_everything
from train.rank_state import from_first
from train.slices import slice_of
from train.storage import SCHEMA_VERSION, save

# 17 and 15 rows: ranks have unequal parts. No other size of theirs is 17, 15, 9, 8 or 7.
OPTIONS = {
    "epochs": 2,
    "batch_size": 17,
    "linear_batch_size": 17,
    "embedding": 10,
    "projection": 10,
    "inner_width": 10,
}
# Kinds that are put together of others which are here; and draws for each pair of a row and a
# label, of which ranks have different numbers.
LEFT_OUT = ("contrastive-", "uniform-i", "uniform-r", "within-batch-c", "within-batch-r", "model-")


class SameDraws(TorchDispatchMode):
    """Random numbers that depend on how many were drawn before, and on the row of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.draws, self.own, self.whole = 0, 0, 0
        self.begin_batch = ranks.begin_batch

    def begun(self, index: torch.Tensor, *step: int) -> torch.Tensor:
        own = self.begin_batch(index, *step)
        self.own, self.whole = len(own), len(index)
        return own

    def drawn(self, shape: list[int], kind: str, high: int = 0) -> torch.Tensor:
        self.draws += 1
        generator = torch.Generator().manual_seed(self.draws)
        size = [self.whole if length == self.own else length for length in shape]
        if kind == "randint":
            values = torch.randint(high, size, generator=generator)
        else:
            draw = torch.randn if kind == "randn" else torch.rand
            values = draw(size, generator=generator)
        if size == shape or ranks.size() == 1:
            return values
        own = torch.arange(ranks.rank(), self.whole, ranks.size())
        return values.index_select(shape.index(self.own), own)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in ("multinomial", "poisson", "bernoulli", "native_dropout"), name
        if name in ("rand", "randn"):
            return self.drawn(list(args[0]), name)
        if name in ("rand_like", "randn_like"):
            return self.drawn(list(args[0].shape), name.removesuffix("_like"))
        if name == "randint":
            return self.drawn(list(args[1]), name, args[0])
        if name in ("normal_", "uniform_", "bernoulli_"):
            return args[0].copy_(self.filled(name, *args))
        return func(*args, **(kwargs or {}))

    def filled(self, name: str, into: torch.Tensor, *settings: float) -> torch.Tensor:
        values = self.drawn(list(into.shape), "randn" if name == "normal_" else "rand")
        if name == "bernoulli_":
            return values < (settings or (0.5,))[0]
        low, high = settings or (0.0, 1.0)
        return values * (high - low) + low if name == "uniform_" else values


class NoBatch(StepCounter):
    """Between batches nothing is drawn for rows."""

    def __init__(self, draws: SameDraws) -> None:
        super().__init__()
        self.mode = draws

    def on_step(self, *_: object) -> None:
        self.mode.own = -1


def cases() -> dict[str, tuple[str, dict[str, object]]]:
    found = {}
    for name in STEPPED:
        kinds = {**(methods.load(name).Config.KINDS or {"": {}}), **VARIANTS.get(name, {})}
        for kind, variant in kinds.items():
            if not kind.startswith(LEFT_OUT) and (kind == "msc-ft" or not kind.endswith("-ft")):
                found[f"{name} {kind}".strip()] = (name, variant)
    for loss in ("softmax", "contrastive"):
        found[f"sampled sharded {loss}"] = ("sampled", {"loss": loss, "shard_labels": True})
    return found


def trained(name: str, variant: dict[str, object]) -> dict[str, Any]:
    config_class = methods.load(name).Config
    options = {key: value for key, value in OPTIONS.items() if hasattr(config_class, key)}
    config = small_config(name, {**variant, **options})
    problem = small_problem(is_sparse=bool(variant.get("negatives")) or name == "sampled")
    seed_everything(3)
    method = methods.load(name).build(config, problem)
    position, draws = Position(), SameDraws()
    ranks.begin_batch = draws.begun
    counter = NoBatch(draws)
    try:
        with draws:
            fit(
                method, problem, config,
                seed=3, position=position, observer=counter, should_stop=counter.should_stop,
            )  # fmt: skip
    finally:
        ranks.begin_batch = draws.begin_batch
    found = {"history": position.history, "weights": cpu_weights(method.predictor)}
    if "shard_labels" in variant:
        tables = (method.predictor.labels, *method.optimizer.moments["labels"])
        held = [table.untyped_storage().nbytes() // (4 * table.shape[1]) for table in tables]
        found["held"] = ranks.concatenated(torch.tensor([held])).tolist()
    return found


def main(path: str, words: list[str]) -> None:
    torch.set_num_threads(1)
    with ranks.joined():
        found = {
            case: trained(*what)
            for case, what in cases().items()
            if not words or case.split()[0] in words
        }
        weights = {case: outcome["weights"] for case, outcome in found.items()}
        if ranks.size() > 1:
            theirs = from_first(weights)
            for case, own in weights.items():
                for name, value in own.items():
                    whole = theirs[case][name]
                    if value.shape != whole.shape:
                        held = slice_of(len(whole), ranks.rank())
                        whole = whole[held.first : held.end]
                    assert torch.equal(value, whole), f"{case}: {name} differs by rank"
        if ranks.is_first():
            save({"schema": SCHEMA_VERSION, "found": found}, Path(path))
    # Threads of a group that outlived its end abort Python at exit, now and then.
    assert not [t for t in Path("/proc/self/task").glob("*/comm") if "gloo" in t.read_text()]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
