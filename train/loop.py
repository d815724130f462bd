"""The training loop: epochs, validation, early stop; deterministic, and resumable at any step."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from train import ranks
from train.batches import Rows, TokenRows, batch_order, scoring_order
from train.config import TrainingConfig
from train.errors import UserError
from train.marking import BestMarks, best_marks, span_f1
from train.method import Method
from train.problem import Part, Problem
from train.rank_state import from_first, to_first
from train.slices import Slice, gathered, side_by_side, slices_of
from train.thresholds import Judged, monitored_score
from train.top_scores import keeps_best_only, top_labels

MONITORED_ROWS = 1024
"""Validation rows whose best labels are looked at after an epoch, at most."""


class TrainingDivergedError(UserError):
    """The loss is no longer a number."""


@dataclass
class Position:
    """How far a run has come; with the method's own state, all that a resumed run needs."""

    stage: int = 0
    """Which of the method's stages."""
    stage_start: int = 0
    """Epochs finished before this stage."""
    stage_epochs: int = 0
    """Epochs of this stage, at most."""
    epoch: int = 0
    """Epochs finished, in all stages."""
    step: int = 0
    """Batches done in the current epoch."""
    loss_sums: dict[str, float] = field(default_factory=dict)
    """Of the current epoch, so far."""
    best_score: float = float("-inf")
    """Of this stage; so are the epoch and the weights."""
    best_epoch: int = 0
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    best_teacher: dict[str, Tensor] = field(default_factory=dict)
    """Weights of the method's teacher at the same epoch, where it has one."""
    history: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0
    epoch_seconds: float = 0.0
    """Of the current epoch, so far."""


class Observer(Protocol):
    """Whoever wants to show or save what happens."""

    def on_step(self, position: Position, n_steps: int, losses: dict[str, Tensor]) -> None:
        """A batch was done."""

    def on_epoch(self, position: Position) -> None:
        """An epoch was done and validated."""


@runtime_checkable
class Saver(Protocol):
    """An observer that keeps the state while an epoch lasts long."""

    def is_due(self) -> bool:
        """Whether it is time to."""

    def save(self, position: Position) -> None:
        """Keep the state: `position` is that of a step within an epoch."""


def seed_everything(seed: int) -> None:
    """Seed the generators that initialisation, dropout and sampling draw from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - third-party code may draw from it
    torch.manual_seed(seed)


def fit(
    method: Method,
    problem: Problem,
    config: TrainingConfig,
    *,
    seed: int,
    position: Position,
    observer: Observer,
    should_stop: Callable[[], bool],
) -> None:
    """Train every stage until its epochs are done or validation stalls, or `should_stop` says so.

    `position` is updated in place: after an early return it holds the step to go on from.
    """
    while not is_finished(method, position, config):
        started = time.monotonic()
        current = method.stage_config(config, position.stage)
        position.stage_epochs = current.epochs
        stopped = _run_epoch(method, problem, current, seed, position, observer, should_stop)
        if not stopped:
            _finish_epoch(method, problem, current, position)
            if _stage_is_done(position, current) and position.stage + 1 < method.stages:
                _enter_next_stage(method, position)
        seconds = time.monotonic() - started
        position.seconds += seconds
        position.epoch_seconds += seconds
        if stopped:
            return
        position.history[-1]["seconds"] = round(position.epoch_seconds, 4)
        position.epoch_seconds = 0.0
        observer.on_epoch(position)


def is_finished(method: Method, position: Position, config: TrainingConfig) -> bool:
    """Whether there is nothing left to train."""
    current = method.stage_config(config, position.stage)
    return position.stage + 1 == method.stages and _stage_is_done(position, current)


def _stage_is_done(position: Position, config: TrainingConfig) -> bool:
    epochs = position.epoch - position.stage_start
    stalled = position.epoch - position.best_epoch >= config.patience
    return epochs >= config.epochs or (epochs > 0 and stalled)


def _enter_next_stage(method: Method, position: Position) -> None:
    """Go on from the best weights of the stage that ended."""
    method.predictor.load_state_dict(from_first(position.best_weights))
    position.stage, position.stage_start = position.stage + 1, position.epoch
    position.best_score, position.best_epoch = float("-inf"), position.epoch
    position.best_weights, position.best_teacher = {}, {}
    method.enter_stage(position.stage)
    if method.mean is not None:
        method.mean.restart(method.predictor)
    if ranks.size() > 1:  # what the stage begins with was drawn by each rank for itself
        method.load_state_dict(from_first(method.state_dict()))


def _run_epoch(
    method: Method,
    problem: Problem,
    config: TrainingConfig,
    seed: int,
    position: Position,
    observer: Observer,
    should_stop: Callable[[], bool],
) -> bool:
    """Do the rest of the current epoch; return whether it was stopped before its end."""
    x = problem.train.x
    lengths = x.lengths if isinstance(x, TokenRows) else None
    batches = batch_order(
        len(x), config.batch_size, seed, position.epoch, lengths, least=ranks.size()
    )
    # Summed on the device: reading a loss every step would wait for the GPU every step.
    begun = ranks.is_first()  # the others' sums are in that of the first
    sums = {name: torch.tensor(value * begun) for name, value in position.loss_sums.items()}
    saver = observer if isinstance(observer, Saver) else None
    method.predictor.train()
    for batch in batches[position.step :]:
        index = ranks.begin_batch(batch, seed, position.epoch, position.step)
        rows = index.to(problem.device)
        # Texts lie on the host: asked by row numbers from the device, they would wait for it.
        inputs = x.batch(rows if lengths is None else index)
        y = problem.train.y
        targets = y.lists(rows) if method.takes_label_lists else y.take(rows)
        losses = method.step(*problem.views(inputs, targets))
        if method.mean is not None:
            method.mean.follow()
        for name, loss in losses.items():
            counted = ranks.weighted(loss)
            sums[name] = sums[name].to(loss.device) + counted if name in sums else counted
        position.step += 1
        observer.on_step(position, len(batches), losses)
        if position.step < len(batches) and ranks.agree_after(position.step):
            stops, saves = ranks.any_of(should_stop(), saver is not None and saver.is_due())
            if stops or saves:
                position.loss_sums = ranks.totals(sums)
            if stops:
                return True
            if saver is not None and saves:
                saver.save(position)
    position.loss_sums = {k: value / len(batches) for k, value in ranks.totals(sums).items()}
    return False


def _finish_epoch(
    method: Method, problem: Problem, config: TrainingConfig, position: Position
) -> None:
    """Validate, keep the weights if they are the best so far, and open the next epoch."""
    losses, position.loss_sums = position.loss_sums, {}
    position.epoch, position.step = position.epoch + 1, 0
    if not all(np.isfinite(value) for value in losses.values()):
        bad = next(name for name, value in losses.items() if not np.isfinite(value))
        raise TrainingDivergedError(
            f"the loss {bad!r} became {losses[bad]} in epoch {position.epoch}: "
            "lower the learning rate, or check the inputs for huge values"
        )
    method.before_validation()
    with method.mean.in_place() if method.mean is not None else nullcontext():
        score = validation_score(
            method.predictor, problem.monitored, problem.device, config.monitor
        )
        if score > position.best_score:
            position.best_score, position.best_epoch = score, position.epoch
            _keep_weights(method, position)
    method.end_epoch(score)
    place = {"epoch": position.epoch, "stage": position.stage}
    measured = {f"validation_{config.monitor}": score}
    position.history.append({**place, **losses, **measured})


def _keep_weights(method: Method, position: Position) -> None:
    """Rank 0 keeps the weights, and has the slices of others sent."""
    if ranks.is_first():
        position.best_weights = cpu_weights(method.predictor, position.best_weights)
        position.best_teacher = cpu_weights(method.teacher, position.best_teacher)
    else:
        to_first(method.predictor.state_dict(), slices_of(method.predictor))


def validation_score(
    predictor: nn.Module, part: Part, device: torch.device, monitor: str = "example_f1"
) -> float:
    """What early stopping and the best epoch are judged by, higher is better.

    `ndcg@5` needs neither all scores nor all rows, and looks at rows evenly spread over the part.
    """
    n_rows, n_labels = part.targets.shape
    if part.marks is not None:
        (found,) = scores_of(predictor, (part,), device)
        assert isinstance(found, BestMarks)  # noqa: S101 - words are judged by it
        marks = part.marks
        return ranks.on_first(lambda: span_f1(found, marks))
    if monitor == "ndcg@5":
        index = torch.arange(0, n_rows, -(-n_rows // MONITORED_ROWS))
        top = top_labels(predictor, part.x, n_labels, device, k=5, index=index)
        return ranks.on_first(lambda: monitored_score(top, part.targets[index.numpy()], monitor))
    (scores,) = scores_of(predictor, (part,), device)
    assert not isinstance(scores, BestMarks)  # noqa: S101 - see above
    return ranks.on_first(lambda: monitored_score(scores, part.targets, monitor))


def scores_of(
    predictor: nn.Module, parts: Sequence[Part], device: torch.device
) -> tuple[Judged | BestMarks, ...]:
    """Scores of all rows: of every label, or of the best where any matrix would be too large.

    Of rows of words, the best label of each. Ranks score in turn, and the first alone gets all; so
    it is with `predict`. Where each holds a slice of the labels, all score all rows by it.
    """
    words = [(part.x, part.targets.shape[1]) for part in parts if part.marks is not None]
    if words:
        return tuple(best_marks(predictor, rows, n_labels, device) for rows, n_labels in words)
    if any(keeps_best_only(*part.targets.shape) for part in parts):
        return tuple(top_labels(predictor, part.x, part.targets.shape[1], device) for part in parts)
    return tuple(predict(predictor, part.x, device) for part in parts)


@torch.no_grad()
def predict(predictor: nn.Module, rows: Rows, device: torch.device) -> np.ndarray:
    """Scores in [0, 1] of all rows, (rows, labels) float32."""
    was_training = predictor.training
    predictor.eval()
    order = scoring_order(rows)
    is_sliced = bool(slices_of(predictor))
    scores = [
        predictor(rows.take(index.to(device))).sigmoid().cpu()
        for index in (order if is_sliced else ranks.in_turn(order))
    ]
    predictor.train(was_training)
    if is_sliced:
        in_turn = torch.cat([side_by_side(part) for part in scores])
    else:
        in_turn = ranks.collected(scores, [len(index) for index in order])
    if not ranks.is_first():
        return in_turn.numpy()
    if isinstance(rows, TokenRows):  # others come in their own order
        in_turn = in_turn[torch.cat(order).argsort()]
    return in_turn.numpy()


def cpu_weights(
    network: nn.Module | None, into: dict[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """A copy of the weights that later steps do not change; empty where there is no network.

    into: an earlier copy whose memory is taken: one of several gigabytes is enough. Tables of
    which each rank holds a slice are whole in rank 0.
    """
    if network is None:
        return {}
    weights, slices = network.state_dict(), slices_of(network)
    shapes = {name: _whole_shape(value, slices.get(name)) for name, value in weights.items()}
    if not into or {name: value.shape for name, value in into.items()} != shapes:
        into = {}
    return {
        name: gathered(value, slices[name].n_rows, into.get(name))
        if name in slices
        else _copied(value, into.get(name))
        for name, value in weights.items()
    }


def _whole_shape(held: Tensor, own: Slice | None) -> torch.Size:
    return held.shape if own is None else torch.Size([own.n_rows, *held.shape[1:]])


def _copied(value: Tensor, into: Tensor | None) -> Tensor:
    return value.detach().cpu().clone() if into is None else into.copy_(value.detach())


def training_state(method: Method, position: Position) -> dict[str, Any]:
    """Everything the next step depends on, as tensors and plain values; whole in rank 0."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "method": to_first(method.state_dict(), slices_of(method.predictor)),
        "position": vars(position).copy(),
        "rng": {"torch": torch.get_rng_state(), "cuda": cuda},
    }


def restore(state: dict[str, Any], method: Method) -> Position:
    """Put a method, and the generators, back to where a saved run stopped."""
    position = Position(**state["position"])
    for stage in range(1, position.stage + 1):
        method.enter_stage(stage)
    if method.mean is not None:
        method.mean.restart(method.predictor)
    method.load_state_dict(state["method"])
    torch.set_rng_state(state["rng"]["torch"])
    if state["rng"]["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["rng"]["cuda"])
    return position
