"""What a person sees while planned runs are trained."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from train.display import SHOWN_SET_METRICS
from train.evidence import kept_scores, read_metrics, record_of
from train.planned import Outcome, PlannedRun


class RunsDisplay:
    """A bar over all runs and a line for each that goes on; plain lines without a terminal."""

    def __init__(
        self, console: Console, runs: Sequence[PlannedRun], *, done: int, enabled: bool
    ) -> None:
        self.console = console
        self.lines = enabled and not console.is_terminal
        self.total, self.count = len(runs), done
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not (enabled and console.is_terminal),
        )
        self.bar = self.progress.add_task("runs", total=self.total, completed=self.count, note="")
        self.tasks = {run: self.progress.add_task("", visible=False, note="") for run in runs}

    def started(self, run: PlannedRun) -> None:
        """Show a line for the run; early stopping can only shorten it."""
        self.progress.reset(self.tasks[run], description=f"  {run}", total=run.epochs, visible=True)

    def epochs_done(self, run: PlannedRun, epochs: int, best: float | None) -> None:
        """Move its bar, and say how good its best epoch was on validation rows."""
        # Each stage of a method has as many epochs again.
        stages = max(1, -(-epochs // run.epochs))
        note = "" if best is None else f"best {best:.4f}"
        self.progress.update(
            self.tasks[run], completed=epochs, total=stages * run.epochs, note=note
        )

    def ended(self, run: PlannedRun, outcome: Outcome) -> None:
        """Say what it gave."""
        self.count += outcome.state != "interrupted"
        self.progress.update(self.bar, completed=self.count)
        self.progress.update(self.tasks[run], visible=False)
        if self.lines:
            told = f"[{self.count}/{self.total}] {run}: {_told(run, outcome)}"
            self.console.print(told, highlight=False, markup=False, soft_wrap=True)


def _told(run: PlannedRun, outcome: Outcome) -> str:
    if outcome.state != "finished":
        return outcome.state
    record = record_of(read_metrics(run.folder.path))
    first = kept_scores(record.scores)[0]
    title = SHOWN_SET_METRICS[first.removeprefix("fixed.")]
    return f"{title} {record.scores[first]:.4f} after {record.seconds:.1f} s"
