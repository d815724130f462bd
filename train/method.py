"""What a method of training is: the base class of every module in `train/methods/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from train.averaging import RunningMean
from train.batches import Inputs
from train.config import TrainingConfig


class Method(ABC):
    """A model in training.

    Whatever an instance holds with a `state_dict` (networks, optimisers) is saved and restored
    when a run is interrupted, so a method needs no code of its own to be resumable.
    """

    predictor: nn.Module
    """Rows (batch, features) -> logits (batch, labels): all that survives training.

    Before the last stage it may be another network: the one that stage trains. Where labels have
    embeddings, its method `label_embeddings()` returns them, (labels, size), for the label map. If
    it has `embed(x)` too, (batch, size), the logits are the inner products of the two. Where ranks
    hold a part of a table each, `slices` tells which: the logits are of this rank's labels.
    """
    mean: RunningMean | None = None
    """Of the predictor's weights, where it is wanted: it is validated and kept in their place."""
    stages: int = 1
    """Stages are trained one after the other, each until its validation score stalls."""

    takes_label_lists: bool = False
    """Whether `step` gets the labels of the rows as `LabelLists`, in place of a dense matrix."""

    @property
    def teacher(self) -> nn.Module | None:
        """A network that teaches the predictor and is not part of it; `model.pt` keeps it too."""
        return None

    @abstractmethod
    def step(self, x: Inputs, y: Any) -> dict[str, Tensor]:  # noqa: ANN401 - see `takes_label_lists`
        """Update on one batch, x (batch, features), y (batch, labels); return named losses.

        Sparse rows come as such where a product with them is faster so. `y` is a tensor, or
        `LabelLists` where the method takes those.
        """

    def before_validation(self) -> None:  # noqa: B027 - most need nothing
        """Make the predictor ready to be judged: the last batch of an epoch is done."""

    def end_epoch(self, validation_score: float) -> None:  # noqa: B027 - most need nothing
        """Adapt to the validation score of the epoch that ended (higher is better)."""

    def stage_config(self, config: TrainingConfig, stage: int) -> TrainingConfig:
        """How long a stage trains, on what batches; unless told as long as any other."""
        return config

    def enter_stage(self, stage: int) -> None:  # noqa: B027 - most have a single one
        """Make ready for stage 1, 2, ...: the best weights of the stage before are loaded."""

    def state_dict(self) -> dict[str, Any]:
        """The state of every part that has one."""
        return {name: part.state_dict() for name, part in self._parts().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore every part."""
        for name, part in self._parts().items():
            part.load_state_dict(state[name])

    def _parts(self) -> dict[str, Any]:
        return {name: part for name, part in vars(self).items() if hasattr(part, "state_dict")}
