"""`--tensorboard`: what every epoch gave, as events that TensorBoard shows."""

from __future__ import annotations

from typing import Any

from train.errors import needs_extra
from train.loop import Observer, Position
from train.run import RunFolder

HIDDEN = ("epoch", "stage")
VALIDATION = "validation_"


class TensorBoardEvents:
    """Writes each epoch and passes all events on.

    Epochs, not steps: reading a loss every step would wait for the device every step. The first
    epoch that comes brings those before it too and replaces older events, so that the folder
    holds the history of the run once, whether it was resumed or begun anew.
    """

    def __init__(self, run: RunFolder, observer: Observer) -> None:
        self.run, self.observer = run, observer
        self.on_step = observer.on_step
        self.writer: Any = None

    def on_epoch(self, position: Position) -> None:
        """Write what is new."""
        fresh = position.history[-1:]
        if self.writer is None:
            for old in self.run.tensorboard.glob("events.out.tfevents.*"):
                old.unlink()
            self.writer, fresh = summary_writer()(str(self.run.tensorboard)), position.history
        for epoch in fresh:
            for name, value in epoch.items():
                if name not in HIDDEN:
                    self.writer.add_scalar(_tag(name), value, int(epoch["epoch"]))
        self.writer.flush()  # so that a run can be watched, and one that is killed was not in vain
        self.observer.on_epoch(position)


def summary_writer() -> Any:  # noqa: ANN401 - torch's class, untyped
    """The class that writes events; one sentence where its package is missing."""
    with needs_extra("tensorboard", "--tensorboard"):
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - may be missing
    return SummaryWriter


def _tag(name: str) -> str:
    if name.startswith(VALIDATION):
        return f"validation/{name.removeprefix(VALIDATION)}"
    return "time/seconds" if name == "seconds" else f"loss/{name}"
