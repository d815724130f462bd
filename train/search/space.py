"""Which hyper-parameters a search varies, and between what: one table for all methods.

A name means the same wherever it occurs, so a new method is searched without further code. What
is not here, such as epochs and monitor, stays as preset and flags have it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from optuna.trial import BaseTrial

from train.config import TEXT_OPTIONS, MethodConfig
from train.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class Range:
    """Numbers between two, both included; integers if these are."""

    low: float
    high: float
    log: bool = False

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{', by factors' if self.log else ''}"


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Any, ...]

    def names(self) -> dict[str, Any]:
        """The values by what the storage calls them."""
        return {_name(value): value for value in self.values}

    def __str__(self) -> str:
        return " | ".join(self.names())


Space: TypeAlias = dict[str, Range | Choice]

STEP_SIZE = Range(1e-4, 1e-2, log=True)
DECAY = Range(1e-6, 1e-2, log=True)
WEIGHT = Range(0.1, 10.0, log=True)
RANGES: Space = {
    "lr": STEP_SIZE,
    "loss_lr": STEP_SIZE,
    "task_lr": STEP_SIZE,
    "pretrain_lr": STEP_SIZE,
    "encoder_lr": Range(1e-5, 3e-4, log=True),
    "weight_decay": DECAY,
    "loss_weight_decay": DECAY,
    "dropout": Range(0.0, 0.6),
    "batch_size": Choice((16, 32, 64, 128)),
    "hidden": Choice(((200,), (400,), (200, 200), (400, 400), (800, 800))),
    # energy networks
    "global_units": Range(50, 400, log=True),
    "energy_weight": WEIGHT,
    "cross_entropy_weight": WEIGHT,
    "samples": Range(5, 80, log=True),
    "inference_rate": Range(0.01, 1.0, log=True),
    # losses
    "gamma": Range(0.5, 5.0),
    "positive_gamma": Range(0.0, 2.0),
    "negative_gamma": Range(1.0, 6.0),
    "shift": Range(0.0, 0.2),
    "tau": Range(0.25, 2.0),
    "pos_temp": Range(1.0, 8.0, log=True),
    "neg_temp": Range(0.5, 4.0, log=True),
    "temperature": Range(0.02, 0.5, log=True),
    # autoencoders
    "latent": Range(16, 128, log=True),
    "kl_weight": Range(0.05, 2.0, log=True),
    "contrastive_weight": WEIGHT,
    "nll_weight": Range(0.05, 1.0, log=True),
    "ranking_weight": Range(1.0, 50.0, log=True),
    # neighbours and embeddings
    "k": Range(5, 30),
    "smoothing": WEIGHT,
    "vigilance": Range(0.5, 0.99),
    "ridge": Range(0.01, 10.0, log=True),
    "learners": Range(3, 15),
}


def space_of(config: MethodConfig, fixed: Collection[str], vary: str = "") -> Space:
    """What of a config is searched: all that the table knows, or what `vary` names.

    fixed: fields that the user has given by flags. Fields that choose the kind of a method stay.
    """
    names = {field.name for field in dataclasses.fields(config)}
    kept = {name for chosen in config.KINDS.values() for name in chosen} | set(fixed)
    if config.tuning == "frozen":
        kept |= set(TEXT_OPTIONS)  # without effect
    known = {name: values for name, values in RANGES.items() if name in names - kept}
    if "lr" in known and "min_lr" in names:  # it falls to that and must not begin below
        known["lr"] = dataclasses.replace(STEP_SIZE, low=getattr(config, "min_lr"))  # noqa: B009
    wanted = [word.strip().replace("-", "_") for word in vary.split(",") if word.strip()]
    for name in wanted:
        if name not in known:
            raise ConfigError(f"--vary {name} cannot be searched here; {did_you_mean(name, known)}")
    space = {name: known[name] for name in wanted or known}
    if not space:
        raise ConfigError(
            "there is nothing to search: every hyper-parameter with a known range is fixed by a "
            "flag, or the method has none"
        )
    return space


def suggested(trial: BaseTrial, space: Space) -> dict[str, Any]:
    """A value for each name; those that the trial has already stay."""
    return {name: _suggested(trial, name, values) for name, values in space.items()}


def _suggested(trial: BaseTrial, name: str, values: Range | Choice) -> Any:  # noqa: ANN401 - any
    if isinstance(values, Choice):
        names = values.names()
        return names[str(trial.suggest_categorical(name, list(names)))]
    if isinstance(values.low, int) and isinstance(values.high, int):
        return trial.suggest_int(name, values.low, values.high, log=values.log)
    return trial.suggest_float(name, values.low, values.high, log=values.log)


def stored(config: MethodConfig, space: Space) -> dict[str, Any]:
    """The values of a config as a trial stores them; those outside of the space are left out."""
    return {
        name: _name(value) if isinstance(values, Choice) else value
        for name, values in space.items()
        if _holds(values, value := getattr(config, name))
    }


def _holds(values: Range | Choice, value: Any) -> bool:  # noqa: ANN401 - any
    if isinstance(values, Choice):
        return value in values.values
    return bool(values.low <= value <= values.high)


def chosen(values: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """The values that a trial's stored parameters mean."""
    return {
        name: space[name].names()[value] if isinstance(space[name], Choice) else value  # type: ignore[union-attr]
        for name, value in values.items()
    }


def _name(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
