"""Models that a method is made of, trained before it: each a run of its own, in its run folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from train import methods
from train.config import MethodConfig, config_values
from train.errors import ConfigError
from train.evidence import read_metrics
from train.options import DataOptions
from train.parsing import as_words
from train.planned import RUN_DEFAULTS, Outcome, PlannedRun, draft, method_and_kind, placed
from train.preparing import Prepared

PASSED_ON = (*(field.name for field in dataclasses.fields(DataOptions)), "device", "threads")
"""Options that members have in common with what they are for."""


def with_members(prepared: Prepared, train_one: Callable[[PlannedRun], Outcome]) -> Prepared | None:
    """Train what the method names to be trained, if anything; None where that was interrupted.

    Members that are finished are not trained again, so that the same command goes on.
    """
    module = methods.load(prepared.method_name)
    names = module.untrained(prepared.config) if hasattr(module, "untrained") else []
    runs = planned_members(prepared, names)
    for run in runs:
        module.check_member(run.method, run.config, prepared.problem.shape)
    for run in runs:
        if prepared.options.overwrite:
            run.folder.resume.unlink(missing_ok=True)
        outcome = train_one(run)
        if outcome.state == "interrupted":
            return None
        if outcome.state == "failed":
            raise ConfigError(f"member {run.name}: {outcome.reason}")
    if not runs:
        return prepared
    folders = [run.folder.path for run in runs]
    return dataclasses.replace(
        prepared,
        resolved=module.with_models(prepared.config, folders),
        members_seconds=sum(read_metrics(folder)["seconds"] for folder in folders),
    )


def planned_members(prepared: Prepared, names: Sequence[str]) -> list[PlannedRun]:
    """A run for each METHOD[:KIND][@PRESET], on the same rows, no two with the same seed."""
    options = prepared.options
    shared = {name: getattr(options, name) for name in PASSED_ON if name != "fraction"}
    words = [*as_words(shared, RUN_DEFAULTS), *_encoding_words(prepared.config)]
    words += ["--no-report"] + ["--no-progress"] * (not options.progress)
    first_seed = options.seed * len(names)
    return [
        placed(
            _draft(name, words),
            fraction=options.fraction,
            seed=first_seed + number,
            out=prepared.run.path / "members",
        )
        for number, name in enumerate(names)
    ]


def _draft(name: str, words: Sequence[str]) -> PlannedRun:
    variant, _, preset = name.partition("@")
    return draft(*method_and_kind(variant), [*words, *(["--preset", preset] if preset else [])])


def _encoding_words(config: MethodConfig) -> list[str]:
    """How rows become numbers must be the same in all."""
    values = config_values(config)
    names = [field.name for field in dataclasses.fields(MethodConfig)]
    return as_words({name: values[name] for name in names}, config_values(MethodConfig()))
