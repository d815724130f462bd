"""A run that is planned: its settings, its folder, the command line that repeats it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from train import methods
from train.config import MethodConfig, TrainingConfig
from train.errors import ConfigError, did_you_mean
from train.evidence import full_name
from train.options import RunOptions
from train.parsing import as_words, parse_run
from train.run import RunFolder

RUN_DEFAULTS = {field.name: field.default for field in dataclasses.fields(RunOptions)}


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run, with all its settings."""

    name: str
    """Method with its kind."""
    method: str
    config: MethodConfig
    options: RunOptions
    command: str

    @property
    def folder(self) -> RunFolder:
        """Where it goes."""
        assert self.options.out is not None  # noqa: S101 - `placed` names one for each
        return RunFolder(self.options.out)

    @property
    def epochs(self) -> int:
        """How many it may take, in each stage; one where it is fitted in one go."""
        return self.config.epochs if isinstance(self.config, TrainingConfig) else 1

    def __str__(self) -> str:
        share = "" if self.options.fraction == 1 else f", {self.options.fraction:g} of the rows"
        return f"{self.name}, seed {self.options.seed}{share}"


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    state: Literal["finished", "interrupted", "failed"]
    reason: str = ""
    """Why it failed."""


def method_and_kind(word: str) -> tuple[str, str]:
    """What `METHOD` or `METHOD:KIND` names; the kind is empty where none is."""
    method, _, kind = word.strip().partition(":")
    kinds = methods.load(method).Config.KINDS
    if kind and kind not in kinds:
        known = did_you_mean(kind, kinds) if kinds else "it has only one"
        raise ConfigError(f"there is no kind {kind!r} of method {method}: {known}")
    return method, kind


def draft(method: str, kind: str, given: Sequence[str]) -> PlannedRun:
    """A run parsed as the command line it stands for; seed, share of the rows and folder are open.

    `given` are the flags besides those of the kind.
    """
    config_class = methods.load(method).Config
    words = [*as_words(config_class.KINDS.get(kind, {}), vars(config_class())), *given]
    options, config = parse_run(method, words)
    if kind and config.variant != kind:
        raise ConfigError(
            f"--preset {options.preset} makes {method}:{kind} a {method}:{config.variant}: "
            "compare it under that name, or take another preset"
        )
    return PlannedRun(
        name=full_name(method, config.variant),
        method=method,
        config=config,
        options=options,
        command=shlex.join(["python", "-m", "train", method, *words]),
    )


def placed(run: PlannedRun, *, fraction: float, seed: int, out: Path) -> PlannedRun:
    """The draft with what it left open; `out` is the folder of this and other runs."""
    choice: dict[str, Any] = {
        "fraction": fraction,
        "seed": seed,
        "out": out / f"{run.name.replace(':', '-')}-{seed}",
    }
    return dataclasses.replace(
        run,
        options=dataclasses.replace(run.options, **choice),
        command=f"{run.command} {shlex.join(as_words(choice, RUN_DEFAULTS))}",
    )
