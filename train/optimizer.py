"""Optimisers with their schedules, saved and resumed as one part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LinearLR, LRScheduler, ReduceLROnPlateau

from train import ranks
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

    SEAL's settings (Lee et al., NeurIPS 2022): global norm 10, factor 0.5 after 5 epochs. With
    `falling_epochs` the rate falls evenly over so many, as is usual for pretrained transformers.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | ParameterGroups,
        *,
        lr: float,
        weight_decay: float,
        betas: tuple[float, float] = (0.9, 0.999),
        falling_epochs: int | None = None,
    ) -> None:
        self.adam = torch.optim.AdamW(
            parameters, lr=lr, betas=betas, weight_decay=weight_decay, fused=True
        )
        self.parameters = [w for group in self.adam.param_groups for w in group["params"]]
        self.schedule: ReduceLROnPlateau | LinearLR = (
            ReduceLROnPlateau(self.adam, mode="max", factor=0.5, patience=5)
            if falling_epochs is None
            else LinearLR(self.adam, 1.0, 1 / falling_epochs, max(1, falling_epochs - 1))
        )

    def step(self, loss: Tensor) -> None:
        """Take one step down the loss; networks the loss merely passes through get no gradient."""
        self.adam.zero_grad()
        ranks.backward(loss, self.parameters)
        nn.utils.clip_grad_norm_(self.parameters, CLIP_NORM)
        self.adam.step()

    def end_epoch(self, validation_score: float) -> None:
        """Let the rate follow the validation score, or fall."""
        if isinstance(self.schedule, ReduceLROnPlateau):
            self.schedule.step(validation_score)
        else:
            self.schedule.step()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {"adam": self.adam.state_dict(), "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.adam.load_state_dict(state["adam"])
        self.schedule.load_state_dict(state["schedule"])


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
        self.parameters = list(parameters)
        self.adam = torch.optim.Adam(self.parameters, lr=lr, weight_decay=weight_decay, fused=True)
        self.schedule = schedule(self.adam)

    def step(self, loss: Tensor) -> None:
        """Take one step down the loss."""
        self.adam.zero_grad()
        ranks.backward(loss, self.parameters)
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


class PlannedOptimizer:
    """AdamW with clipped gradients and rates that follow a plan of the whole training.

    Vectors, such as biases and the scales of a LayerNorm, are not decayed.
    """

    def __init__(
        self,
        rates: Iterable[tuple[Iterable[nn.Parameter], float]],
        *,
        weight_decay: float,
        clip_norm: float,
        plan: Callable[[float], float],
        n_steps: int,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        """Group the parameters; each comes with the rate that the plan is a share of.

        plan: share of training done -> share of the rate. scaler: for gradients in float16.
        """
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for parameters, lr in rates:
            for parameter in parameters:
                if parameter.requires_grad:
                    decay = weight_decay if parameter.ndim > 1 else 0.0
                    groups.setdefault((lr, decay), []).append(parameter)
        self.parameters = [parameter for group in groups.values() for parameter in group]
        self.adam = torch.optim.AdamW(
            [
                {"params": group, "lr": lr, "peak": lr, "weight_decay": decay}
                for (lr, decay), group in groups.items()
            ],
            fused=True,
        )
        self.clip_norm, self.plan, self.n_steps, self.scaler = clip_norm, plan, n_steps, scaler
        self.steps = 0

    def step(self, loss: Tensor) -> None:
        """Take one step down the loss."""
        for group in self.adam.param_groups:
            group["lr"] = group["peak"] * self.plan(min(1.0, self.steps / self.n_steps))
        self.adam.zero_grad()
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        ranks.backward(scaled, self.parameters)
        if self.scaler is not None:
            self.scaler.unscale_(self.adam)
        nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        if self.scaler is None:
            self.adam.step()
        else:
            self.scaler.step(self.adam)
            self.scaler.update()
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        scaler = {} if self.scaler is None else self.scaler.state_dict()
        return {"adam": self.adam.state_dict(), "steps": self.steps, "scaler": scaler}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.adam.load_state_dict(state["adam"])
        self.steps = state["steps"]
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])


def warm_up_and_cosine(done: float, warm_up: float = 0.05) -> float:
    """Share of the rate at a share of training: rises evenly to 1, then falls as half a cosine."""
    if done < warm_up:
        return done / warm_up
    return 0.5 + 0.5 * math.cos(math.pi * (done - warm_up) / (1 - warm_up))


def linear_decay(done: float) -> float:
    """Share of the rate at a share of training: falls evenly from 1 to 0."""
    return max(0.0, 1.0 - done)
