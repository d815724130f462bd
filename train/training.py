"""One training run, from what was prepared to a filled run folder: fit, judge, save."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from train import methods, ranks, storage
from train.averaging import RunningMean
from train.checkpoint import save_checkpoint
from train.config import TokenConfig, TrainingConfig, config_values, flag
from train.data import (
    propensity_constants,
)
from train.errors import ConfigError
from train.interruption import interruptions
from train.loop import (
    Position,
    TrainingDivergedError,
    cpu_weights,
    fit,
    is_finished,
    restore,
    scores_of,
    seed_everything,
    training_state,
)
from train.method import Method
from train.outcome import checkpoint_of, metrics_of
from train.precision import computing_in
from train.preparing import Prepared
from train.products import fast_products
from train.rank_state import from_first, to_first
from train.run import (
    RunFolder,
    write_config,
    write_history,
    write_metrics,
    write_split,
)
from train.scoring import Judgement, judge
from train.slices import slices_of
from train.tensorboard import TensorBoardEvents

SAVING_SHARE = 0.1
"""Of the time, at most, that goes into saving the state of a run that is not interrupted."""


OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
SAVE_EVERY = 300.0
"""Seconds of training that a run may lose when its process is killed, however long its epochs."""


class Display(Protocol):
    """Shows a run while it goes on."""

    def on_step(self, position: Position, n_steps: int, losses: dict[str, Tensor]) -> None:
        """A batch was done."""

    def on_epoch(self, position: Position) -> None:
        """An epoch was done."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a run ended."""

    run: RunFolder
    judgement: Judgement
    position: Position
    interrupted: bool
    stages_left: int
    """Stages not begun; the model is untrained if there are any."""


def train(prepared: Prepared, display: Display) -> Result:
    """Train to the end or to an interruption; either way leave a valid `model.pt`.

    A method that is fitted in one go leaves nothing if interrupted: it has no half-way.
    """
    seed_everything(prepared.options.seed)
    with _flushed_denormals(), fast_products(), _memory_in_words(prepared):
        if isinstance(prepared.config, TrainingConfig):
            return _train_in_steps(prepared, prepared.config, display)
        return _train_in_one_go(prepared)


@contextmanager
def _flushed_denormals() -> Iterator[None]:
    """Gradients of labels that are all but certain fall below 1e-38, where a CPU becomes slow."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        # The next one to compute in this process may need numbers that small.
        torch.set_flush_denormal(False)


@contextmanager
def _memory_in_words(prepared: Prepared) -> Iterator[None]:
    """Answer a lack of memory with what would need less of it."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch: of a GPU its own kind, else any
        if isinstance(error, RuntimeError) and not OUT_OF_MEMORY.search(str(error)):
            raise
        advice = "take fewer rows with --fraction, or smaller layers"
        if isinstance(prepared.config, TrainingConfig) and prepared.config.batch_size > 1:
            advice = f"try --batch-size {prepared.config.batch_size // 2}, or smaller layers"
        raise ConfigError(
            f"the memory of {prepared.problem.device} is too small: {advice}"
        ) from error


def _train_in_one_go(prepared: Prepared) -> Result:
    started = time.monotonic()
    predictor = methods.load(prepared.method_name).fit(prepared.resolved, prepared.problem)
    position = Position(seconds=prepared.members_seconds + time.monotonic() - started)
    _write_settings(prepared)
    judgement = _finish(prepared, predictor, {}, position, finished=True)
    return Result(
        run=prepared.run, judgement=judgement, position=position, interrupted=False, stages_left=0
    )


def _train_in_steps(prepared: Prepared, config: TrainingConfig, display: Display) -> Result:
    method = methods.load(prepared.method_name).build(config, prepared.problem)
    if config.average:
        method.mean = RunningMean(method.predictor, config.average)
    position = _begun(prepared, method)
    observer = _observer(prepared, method, display)
    ranks.on_first(lambda: _write_settings(prepared))
    # torchrun passes Ctrl-C on to processes that had it already, and kills those that take long.
    with interruptions(once=ranks.size() == 1) as interrupted:
        precision = config.precision if isinstance(config, TokenConfig) else "float32"
        try:
            with computing_in(precision, prepared.problem.device):
                fit(
                    method,
                    prepared.problem,
                    config,
                    seed=prepared.options.seed,
                    position=position,
                    observer=observer,
                    should_stop=interrupted.is_set,
                )
        except TrainingDivergedError as error:
            _keep_the_best(prepared, method, position, error)
            raise
        finished = is_finished(method, position, config)
        if not finished:
            _save_state(prepared, method, position)
        teacher = _take_best_weights(method, position)
        judgement = _finish(prepared, method.predictor, teacher, position, finished=finished)
    return Result(
        run=prepared.run,
        judgement=judgement,
        position=position,
        interrupted=not finished,
        stages_left=method.stages - 1 - position.stage,
    )


def _begun(prepared: Prepared, method: Method) -> Position:
    """Where to go on from, with the method in that state: the same in every rank."""
    saved: list[dict[str, Any]] = []  # in rank 0, if at all

    def read() -> bool:
        if prepared.options.resume and prepared.run.resume.is_file():
            saved.append(_saved_state(prepared))
        return bool(saved)

    is_resumed = ranks.on_first(read)
    if ranks.size() == 1:
        return restore(saved[0], method) if is_resumed else Position()
    if not is_resumed:
        saved = [training_state(method, Position())]
    state = from_first(_common(saved[0]) if saved else None, slices_of(method.predictor))
    position = restore(state, method)
    return Position(**saved[0]["position"]) if ranks.is_first() else position


def _common(state: dict[str, Any]) -> dict[str, Any]:
    """The state of a run without what rank 0 keeps alone: the best weights, and its generators."""
    own: dict[str, Any] = {"best_weights": {}, "best_teacher": {}}
    return {
        **state,
        "position": {**state["position"], **own},
        "rng": {**state["rng"], "cuda": []},
    }


def _observer(prepared: Prepared, method: Method, display: Display) -> Display:
    """Who follows the training: rank 0 shows and writes, the others tell it what they hold."""
    if not ranks.is_first():
        display = _Silent()
    elif prepared.options.tensorboard:
        display = TensorBoardEvents(prepared.run, display)
    return _Saving(prepared, method, display)


class _Silent:
    """Shows nothing."""

    def on_step(self, position: Position, n_steps: int, losses: dict[str, Tensor]) -> None:
        pass

    def on_epoch(self, position: Position) -> None:
        pass


def _write_settings(prepared: Prepared) -> None:
    write_config(prepared.run, prepared.method_name, config_values(prepared.config))
    write_split(prepared.run, prepared.split)


class _Saving:
    """Saves the state after epochs and passes all events on to the display.

    After every epoch, unless writing gigabytes would take longer than training; within epochs that
    last longer than `SAVE_EVERY`, that often. Rank 0 decides, and all ranks save at once.
    """

    def __init__(self, prepared: Prepared, method: Method, display: Display) -> None:
        self.prepared, self.method, self.display = prepared, method, display
        self.on_step = display.on_step
        self.last_save = time.monotonic()
        self.next_save = self.last_save

    def is_due(self) -> bool:
        now = time.monotonic()
        return ranks.is_first() and now >= self.next_save and now - self.last_save >= SAVE_EVERY

    def save(self, position: Position) -> None:
        started = time.monotonic()
        _save_state(self.prepared, self.method, position)
        self.last_save = time.monotonic()
        self.next_save = self.last_save + (self.last_save - started) * (1 / SAVING_SHARE - 1)

    def on_epoch(self, position: Position) -> None:
        is_time = ranks.is_first() and time.monotonic() >= self.next_save
        if ranks.any_of(is_time or self._is_last(position))[0]:
            self.save(position)
        self.display.on_epoch(position)

    def _is_last(self, position: Position) -> bool:
        config = self.prepared.config
        return isinstance(config, TrainingConfig) and is_finished(self.method, position, config)


def _save_state(prepared: Prepared, method: Method, position: Position) -> None:
    state = training_state(method, position)

    def write() -> None:
        values = {"schema": storage.SCHEMA_VERSION, "identity": _identity(prepared), **state}
        storage.save(values, prepared.run.resume)
        write_history(prepared.run, position.history)

    ranks.on_first(write)


def _identity(prepared: Prepared) -> dict[str, Any]:
    """What must be the same for a run to be the same run."""
    values = config_values(prepared.config)
    # Training longer is the usual reason to resume a finished run; where tables lie is no matter.
    # A rate that falls over all epochs would have been another one.
    free = ["patience", "shard_labels"] + ["epochs"] * (values.get("schedule") != "linear")
    for name in free:
        values.pop(name, None)
    return {
        **values,
        "method": prepared.method_name,
        "dataset": prepared.data.name,
        "split": prepared.split.rule,
        "split_seed": prepared.options.split_seed,
        "fraction": prepared.options.fraction,
        "seed": prepared.options.seed,
        "train_rows": len(prepared.split.train),
    }


def _saved_state(prepared: Prepared) -> dict[str, Any]:
    state = storage.load(prepared.run.resume)
    # An earlier version's file does not know of options that it did not have.
    known = {**config_values(type(prepared.config)()), **state["identity"]}
    for name, value in _identity(prepared).items():
        before = known.get(name)
        if before != value:
            raise ConfigError(
                f"the run in {prepared.run.path} has {flag(name)} {before}, not {value}: "
                "resume it with the same options, or start another with --out"
            )
    return state


def _take_best_weights(method: Method, position: Position) -> dict[str, Tensor]:
    """Leave the best epoch's weights in the predictor, if its last stage has had an epoch.

    Returns the weights of the teacher that go with them.
    """
    slices = slices_of(method.predictor)
    if _has_best(method, position):
        method.predictor.load_state_dict(from_first(position.best_weights, slices))
        return position.best_teacher
    for stage in range(position.stage + 1, method.stages):  # interrupted before its last stage
        method.enter_stage(stage)
    weights = to_first(method.predictor.state_dict(), slices)
    method.predictor.load_state_dict(from_first(weights, slices))
    return cpu_weights(method.teacher)


def _has_best(method: Method, position: Position) -> bool:
    """Whether the last stage has had an epoch; rank 0 alone holds the weights."""
    return position.stage + 1 == method.stages and position.best_score > float("-inf")


def _keep_the_best(
    prepared: Prepared, method: Method, position: Position, error: TrainingDivergedError
) -> None:
    """Save what was good before the loss was lost, and say so."""
    if _has_best(method, position):
        teacher = _take_best_weights(method, position)
        _finish(prepared, method.predictor, teacher, position, finished=False)
        error.args = (
            f"{error}; {prepared.run.model} holds the weights of epoch {position.best_epoch}, "
            "the best before that",
        )


def _finish(
    prepared: Prepared,
    predictor: nn.Module,
    teacher: dict[str, Tensor],
    position: Position,
    *,
    finished: bool,
) -> Judgement:
    """Judge a trained predictor, and write `model.pt` and `metrics.json`."""
    problem = prepared.problem
    validation, test = scores_of(predictor, (problem.validation, problem.test), problem.device)
    whole = to_first(predictor.state_dict(), slices_of(predictor))

    def judge_and_write() -> Judgement:
        judgement = judge(problem, validation, test, propensity_constants(prepared.data.name))
        weights = {name: value.detach().cpu() for name, value in whole.items()}
        checkpoint = checkpoint_of(prepared, position, weights, teacher, judgement)
        save_checkpoint(checkpoint, prepared.run.model)
        values = metrics_of(prepared, position, judgement)
        write_metrics(prepared.run, {**values, "finished": finished})
        return judgement

    return ranks.on_first(judge_and_write)
