"""What a person sees while training and at its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from torch import Tensor

from train.errors import UserError
from train.loop import Position
from train.scoring import Judgement

REFRESH_SECONDS = 0.25
BAR_COLUMNS, LOSS_COLUMNS = 58, 22
"""Width of what stands beside the losses, and of a usual loss with its name."""
LOG_SECONDS = 5.0
"""Where nobody watches live, at most one line in this time."""

SHOWN_SET_METRICS = {
    "span_f1": "span F1",
    "span_precision": "span precision",
    "span_recall": "span recall",
    "word_accuracy": "word accuracy",
    "core_role_violations": "core-role violations",
    "constrained_span_f1": "span F1, constrained",
    "mean_iou": "mean image IoU",
    "global_iou": "global IoU",
    "pixel_accuracy": "pixel accuracy",
    "example_f1": "example-F1",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "hamming_accuracy": "Hamming accuracy",
    "subset_accuracy": "subset accuracy",
}
SHOWN_RANKING_METRICS = {
    "precision@1": "P@1",
    "precision@3": "P@3",
    "precision@5": "P@5",
    "ndcg@5": "nDCG@5",
    "psp@1": "PSP@1",
    "psp@3": "PSP@3",
    "psp@5": "PSP@5",
    "balanced_error": "balanced error",
    "map_by_label": "mAP by label",
    "lrap": "LRAP",
}


class TrainingDisplay:
    """A progress bar with time left, losses and best score; plain lines where there is no terminal.

    ETA counts all epochs of the stage: early stopping can only shorten it.
    """

    def __init__(self, console: Console, *, enabled: bool) -> None:
        self.console = console
        self.live = enabled and console.is_terminal
        self.lines = enabled and not console.is_terminal
        self.last_refresh = 0.0
        self.last_line = time.monotonic()
        self.progress = Progress(
            # Fits into 80 columns.
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not self.live,
        )
        self.task = self.progress.add_task("training", total=None, note="")

    def __enter__(self) -> TrainingDisplay:
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()

    def on_step(self, position: Position, n_steps: int, losses: dict[str, Tensor]) -> None:
        """Move the bar, a few times a second at most: reading a loss waits for the device."""
        now = time.monotonic()
        if not self.live or now - self.last_refresh < REFRESH_SECONDS:
            return
        self.last_refresh = now
        self.progress.update(
            self.task,
            description=self._epoch(position, position.epoch + 1),
            completed=(position.epoch - position.stage_start) * n_steps + position.step,
            total=position.stage_epochs * n_steps,
            note=self._note(self._losses(losses), position),
        )

    def on_epoch(self, position: Position) -> None:
        """Say how the epoch went."""
        now = time.monotonic()
        if not self.lines or now - self.last_line < LOG_SECONDS:
            return
        self.last_line = now
        hidden = ("epoch", "stage", "seconds")
        latest = {k: v for k, v in position.history[-1].items() if k not in hidden}
        note = self._note(latest, position)
        epoch = self._epoch(position, position.epoch)
        self.console.print(f"{epoch}  {note}", highlight=False)

    def _epoch(self, position: Position, epoch: int) -> str:
        stage = f"stage {position.stage + 1}, " if position.stage else ""
        return f"{stage}epoch {epoch - position.stage_start}/{position.stage_epochs}"

    def _losses(self, losses: dict[str, Tensor]) -> dict[str, float]:
        """The first ones, as many as the line has room for."""
        shown = max(1, (self.console.width - BAR_COLUMNS) // LOSS_COLUMNS)
        return {name: float(losses[name]) for name in list(losses)[:shown]}

    def _note(self, values: dict[str, float], position: Position) -> str:
        shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        if position.best_weights:
            shown += f"  best {position.best_score:.4f}"
        return shown


def score_table(title: str, judgement: Judgement) -> Table:
    """Test scores under each way of choosing thresholds."""
    table = Table(title=title, title_justify="left")
    table.add_column("test rows")
    for column in ("at 0.5", "tuned", "per label", "oracle"):
        table.add_column(column, justify="right")
    columns = (judgement.fixed, judgement.tuned, judgement.per_label, judgement.oracle)
    shown = {key: name for key, name in SHOWN_SET_METRICS.items() if key in judgement.fixed}
    for key, name in shown.items():
        table.add_row(name, *(f"{column[key]:.4f}" if key in column else "" for column in columns))
    for key, name in SHOWN_RANKING_METRICS.items():
        if key in judgement.fixed:
            table.add_row(name, f"{judgement.fixed[key]:.4f}", "", "", "")
    table.caption = (
        "tuned, per label: thresholds from validation rows; oracle: from the test rows themselves"
    )
    table.caption_justify = "left"
    return table


@contextmanager
def or_say_why_not(console: Console) -> Iterator[None]:
    """Print one line where a report cannot be made: what it is about is done and saved."""
    try:
        yield
    except UserError as error:
        told = f"no report: {error} (--no-report asks for none)"
        console.print(told, highlight=False, markup=False, soft_wrap=True)
