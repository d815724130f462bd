"""Optimisers with their schedules, saved and resumed as one part."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from train.nets.text import TextEncoder

CLIP_NORM = 10.0


ParameterGroups: TypeAlias = list[dict[str, Any]]
"""As torch's optimisers take them: `params`, and what differs from the others' settings."""


def parameter_groups(*networks: nn.Module, encoder_lr: float) -> ParameterGroups:
    """The weights that are trained; those of text encoders have a rate of their own.

    As is usual with transformers, their biases and the weights of normalisations do not decay.
    """
    encoders = [part for net in networks for part in net.modules() if isinstance(part, TextEncoder)]
    encoded = [weight for encoder in encoders for weight in encoder.parameters()]
    known = {id(weight) for weight in encoded}
    others = [w for net in networks for w in net.parameters() if id(w) not in known]
    trained = [weight for weight in encoded if weight.requires_grad]
    groups: ParameterGroups = [
        {"params": others},
        {"params": [weight for weight in trained if weight.dim() > 1], "lr": encoder_lr},
        {
            "params": [weight for weight in trained if weight.dim() <= 1],
            "lr": encoder_lr,
            "weight_decay": 0.0,
        },
    ]
    return [group for group in groups if group["params"]]


class TaskOptimizer:
    """AdamW with clipped gradients and a rate that halves when the validation score stalls.

    SEAL's settings (Lee et al., NeurIPS 2022): global norm 10, factor 0.5 after 5 epochs.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | ParameterGroups,
        *,
        lr: float,
        weight_decay: float,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        self.adam = torch.optim.AdamW(
            parameters, lr=lr, betas=betas, weight_decay=weight_decay, fused=True
        )
        self.parameters = [w for group in self.adam.param_groups for w in group["params"]]
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.adam, mode="max", factor=0.5, patience=5
        )

    def step(self, loss: Tensor) -> None:
        """Take one step down the loss; networks the loss merely passes through get no gradient."""
        self.adam.zero_grad()
        loss.backward(inputs=self.parameters)
        nn.utils.clip_grad_norm_(self.parameters, CLIP_NORM)
        self.adam.step()

    def end_epoch(self, validation_score: float) -> None:
        """Let the rate follow the validation score."""
        self.plateau.step(validation_score)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {"adam": self.adam.state_dict(), "plateau": self.plateau.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.adam.load_state_dict(state["adam"])
        self.plateau.load_state_dict(state["plateau"])


class ScheduledOptimizer:
    """Adam with an L2 penalty and a rate that follows a schedule of epochs."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: float,
        weight_decay: float,
        schedule: Callable[[Optimizer], LRScheduler],
    ) -> None:
        self.adam = torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay, fused=True)
        self.schedule = schedule(self.adam)

    def step(self, loss: Tensor) -> None:
        """Take one step down the loss."""
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()

    def end_epoch(self) -> None:
        """Go to the rate of the next epoch."""
        self.schedule.step()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {"adam": self.adam.state_dict(), "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.adam.load_state_dict(state["adam"])
        self.schedule.load_state_dict(state["schedule"])
