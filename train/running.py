"""Training planned runs, one after the other or side by side in processes of their own.

What was interrupted goes on; a run that fails does not keep the others from being trained.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from torch import Tensor

from train.errors import UserError
from train.interruption import interruptions
from train.loop import Position
from train.members import with_members
from train.planned import Outcome, PlannedRun
from train.preparing import prepare
from train.training import Display, train

POLL_SECONDS = 0.5


class Watcher(Protocol):
    """Whoever shows how the runs go on."""

    def started(self, run: PlannedRun) -> None:
        """Its training begins, or goes on."""

    def epochs_done(self, run: PlannedRun, epochs: int, best: float | None) -> None:
        """So many epochs are done, in all stages; the best validation score of the last one."""

    def ended(self, run: PlannedRun, outcome: Outcome) -> None:
        """It is finished, or was interrupted, or has failed."""


def train_all(runs: Sequence[PlannedRun], jobs: int, watcher: Watcher) -> dict[PlannedRun, Outcome]:
    """Train every run, and say how each ended; those not begun before an interruption are left out.

    `jobs` of them at a time.
    """
    if jobs == 1:
        return _one_after_the_other(runs, watcher)
    return _side_by_side(runs, jobs, watcher)


def _one_after_the_other(runs: Sequence[PlannedRun], watcher: Watcher) -> dict[PlannedRun, Outcome]:
    outcomes = {}
    for run in runs:
        watcher.started(run)
        outcomes[run] = train_planned(
            run, _EpochCounter(functools.partial(watcher.epochs_done, run))
        )
        watcher.ended(run, outcomes[run])
        if outcomes[run].state == "interrupted":
            break
    return outcomes


class _EpochCounter:
    """Passes on how many epochs are done and how good the best is, and nothing else."""

    def __init__(self, tell: Callable[[int, float | None], None]) -> None:
        self.tell = tell

    def on_step(self, position: Position, n_steps: int, losses: dict[str, Tensor]) -> None:
        pass

    def on_epoch(self, position: Position) -> None:
        self.tell(position.epoch, position.best_score if position.best_weights else None)


def train_planned(run: PlannedRun, display: Display) -> Outcome:
    """Begin a run, or go on with it where it was interrupted."""
    has_state = run.folder.resume.is_file()
    # Without a state nothing of an earlier attempt can be used.
    options = dataclasses.replace(run.options, resume=has_state, overwrite=not has_state)
    try:
        prepared = with_members(
            prepare(run.method, run.config, options, run.command),
            lambda member: train_planned(member, display),
        )
        if prepared is None:
            return Outcome("interrupted")
        result = train(prepared, display)
    except UserError as error:
        return Outcome("failed", str(error))
    return Outcome("interrupted" if result.interrupted else "finished")


def _side_by_side(
    runs: Sequence[PlannedRun], jobs: int, watcher: Watcher
) -> dict[PlannedRun, Outcome]:
    """Train each run in a process of its own, `jobs` of them at a time."""
    waiting, outcomes = list(runs), {}
    running: dict[Connection, tuple[PlannedRun, BaseProcess]] = {}
    with interruptions() as interrupted:
        while running or waiting:
            if interrupted.is_set():
                waiting.clear()
                _stop(running)
            while waiting and len(running) < jobs:
                running |= _spawned(waiting.pop(0), watcher)
            for connection in wait(list(running), timeout=POLL_SECONDS):
                run, process = running.pop(connection)  # type: ignore[call-overload]
                outcomes[run] = _outcome(connection, process)  # type: ignore[arg-type]
                watcher.ended(run, outcomes[run])
            for run, _ in running.values():
                watcher.epochs_done(run, *_epochs_in(run.folder.history))
    return outcomes


def _stop(running: dict[Connection, tuple[PlannedRun, BaseProcess]]) -> None:
    """Ask every process to save its state and end, and wait until all have done so."""
    for _, process in running.values():
        process.terminate()
    for _, process in running.values():
        process.join()


def _spawned(run: PlannedRun, watcher: Watcher) -> dict[Connection, tuple[PlannedRun, BaseProcess]]:
    # Forking a process that has used torch's threads or a GPU would leave them broken.
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(run, sender))
    process.start()
    sender.close()
    watcher.started(run)
    return {receiver: (run, process)}


def _child(run: PlannedRun, sender: Connection) -> None:
    # Ctrl-C reaches the parent too, which asks by SIGTERM; training answers to both.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The parent reads how many epochs are done from the run folder.
    unheard = _EpochCounter(lambda epochs, best: None)
    sender.send(dataclasses.astuple(train_planned(run, unheard)))


def _outcome(connection: Connection, process: BaseProcess) -> Outcome:
    """What the child said; one that said nothing was ended before its first step, or by a bug."""
    try:
        return Outcome(*connection.recv())
    except EOFError:
        process.join()
    if process.exitcode == -signal.SIGTERM:
        return Outcome("interrupted")
    return Outcome("failed", f"its process ended with code {process.exitcode}")


def _epochs_in(history: Path) -> tuple[int, float | None]:
    """Epochs done, and the best validation score of the stage that goes on."""
    try:
        lines = history.read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0, None  # the first epoch is not done
    epochs = [json.loads(line) for line in lines]
    if not epochs:
        return 0, None
    stage = [epoch for epoch in epochs if epoch["stage"] == epochs[-1]["stage"]]
    score = next(name for name in stage[0] if name.startswith("validation_"))
    return int(epochs[-1]["epoch"]), max(epoch[score] for epoch in stage)
