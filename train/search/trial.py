"""One trial: a training run with the chosen values, told epoch by epoch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from torch import Tensor

from train.evidence import read_metrics
from train.loop import Position
from train.planned import PlannedRun
from train.run import RunFolder
from train.running import train_planned
from train.training import Display

Report: TypeAlias = Callable[[int, float], bool]
"""Takes a place and the validation score there; says whether to give the trial up."""
STAGE = 1_000_000
"""Places of a later stage follow those of an earlier one: only like is compared with like."""
VALIDATION = "validation_"


@dataclass(frozen=True)
class Ending:
    """How a trial ended."""

    state: Literal["finished", "given up", "interrupted", "failed"]
    value: float = float("nan")
    """Validation score, where it is finished."""
    reason: str = ""
    """Why it failed."""


class _GivenUp(Exception):  # noqa: N818 - no error
    """Others were better."""


class _Telling:
    """Tells the validation score of every epoch, and ends the run where it is told to."""

    def __init__(self, display: Display, report: Report) -> None:
        self.display, self.report = display, report
        self.on_step = display.on_step

    def on_epoch(self, position: Position) -> None:
        self.display.on_epoch(position)
        epoch = position.history[-1]
        stage = int(epoch["stage"])
        place = sum(other["stage"] == stage for other in position.history)
        if self.report(stage * STAGE + place, _validation(epoch)):
            raise _GivenUp


class Silent:
    """Shows nothing."""

    def on_step(self, position: Position, n_steps: int, losses: dict[str, Tensor]) -> None:
        """A batch was done."""

    def on_epoch(self, position: Position) -> None:
        """An epoch was done."""


def run_trial(run: PlannedRun, display: Display, report: Report) -> Ending:
    """Train, or go on, or only look, if the run is finished and nobody was told."""
    if not _is_finished(run.folder):
        try:
            outcome = train_planned(run, _Telling(display, report))
        except _GivenUp:
            return Ending("given up")
        if outcome.state != "finished":
            return Ending(outcome.state, reason=outcome.reason)
    return Ending("finished", score_of(run.folder))


def score_of(folder: RunFolder) -> float:
    """The validation score of a finished run: of its best epoch, by `--monitor`.

    For a method that is fitted in one go example-F1 at 0.5. Scores of test rows are never read.
    """
    if not folder.history.is_file():
        return float(read_metrics(folder.path)["scores"]["validation"]["example_f1"])
    epochs = [json.loads(line) for line in folder.history.read_text("utf-8").splitlines()]
    last = epochs[-1]["stage"]
    return max(_validation(epoch) for epoch in epochs if epoch["stage"] == last)


def _is_finished(folder: RunFolder) -> bool:
    return folder.metrics.is_file() and bool(read_metrics(folder.path)["finished"])


def _validation(epoch: dict[str, float]) -> float:
    return next(value for name, value in epoch.items() if name.startswith(VALIDATION))
