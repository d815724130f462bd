"""Methods, found by file name: `python -m train seal` runs `train/methods/seal.py`.

A hyphen in a name is an underscore in its file's.

A method module offers three names:

    Config                           hyper-parameters; each field becomes a flag
    predictor(config, shape)         the untrained network that is exported and served
    build(config, problem) -> Method what trains it, batch by batch

One that is fitted in one go has, in place of `build` and with a `MethodConfig`:

    fit(config, problem)             the trained network

One that is a loss on the plain feed-forward network offers that loss too, so that others can use
it (`--plus`, SEAL's `--base`):

    loss(config, problem) -> Loss    logits and targets -> a scalar

One that is made of other models, some of which may have to be trained first (`train/members.py`):

    untrained(config)                those, as METHOD[:KIND][@PRESET]
    check_member(method, settings, shape)
                                     refuses what could not be one
    with_models(config, folders)     the config with their run folders in their place

One that does more than labels of rows says what in TASKS: names of `train.data.dataset.Task`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import tomllib
from types import ModuleType
from typing import Any

from torch import Tensor

from train.config import config_from
from train.errors import ConfigError, did_you_mean
from train.feedforward import Loss, added_names
from train.problem import Problem


def available() -> list[str]:
    """The names of all methods."""
    return sorted(info.name.replace("_", "-") for info in pkgutil.iter_modules(__path__))


def load(name: str) -> ModuleType:
    """The module of a method."""
    if name not in available():
        raise ConfigError(f"there is no method {name!r}; {did_you_mean(name, available())}")
    return importlib.import_module(f"train.methods.{name.replace('-', '_')}")


def check_task(name: str, task: str) -> None:
    """Refuse a method that cannot learn what a data set asks for."""

    def tasks(each: str) -> tuple[str, ...]:
        return getattr(load(each), "TASKS", ("multilabel",))

    if task not in tasks(name):
        able = ", ".join(each for each in available() if task in tasks(each))
        raise ConfigError(f"{name} does not do {task}: use {able}")


def loss_of(text: str, problem: Problem, *, option: str) -> Loss:
    """The loss of a method, NAME[:FIELD=VALUE[,FIELD=VALUE]], with its defaults for other fields.

    `option` is what asked for it.
    """
    name, _, settings = text.partition(":")
    offering = [each for each in available() if hasattr(load(each), "loss")]
    if name not in offering:
        raise ConfigError(
            f"{option}: {name!r} is not the loss of a method; {did_you_mean(name, offering)}"
        )
    module = load(name)
    config = config_from(_settings(settings, option), module.Config, source=f"{option} {name}")
    loss: Loss = module.loss(config, problem)
    return loss


def _settings(text: str, option: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.replace(",", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{option} must be NAME or NAME:FIELD=VALUE[,FIELD=VALUE], such as "
            f"asl:positive_gamma=0,shift=0.1, got {text!r} behind the name"
        ) from error


def added_losses(plus: str, problem: Problem) -> dict[str, Loss]:
    """The losses that `--plus` adds, times their weights, by what they are logged as."""
    return {
        f"plus_{name}": functools.partial(
            _weighted, loss_of(name, problem, option="--plus"), weight
        )
        for name, weight in added_names(plus).items()
    }


def _weighted(loss: Loss, weight: float, logits: Tensor, targets: Tensor) -> Tensor:
    return weight * loss(logits, targets)
