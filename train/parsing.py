"""The command line of a training run, from words to settings and back."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import tyro

from train import methods
from train.config import MethodConfig, find_preset, flag, read_preset
from train.errors import EXIT_OK
from train.options import RunOptions
from train.usage import method_summary


def parse_run(method_name: str, argv: Sequence[str]) -> tuple[RunOptions, MethodConfig]:
    """Parse flags over the data set's preset over the defaults of the method."""
    module = methods.load(method_name)
    options, config = _parse(method_name, module, argv, module.Config())
    preset = find_preset(options.preset, options.dataset, method_name)
    if preset is not None:
        defaults = read_preset(preset, module.Config, variant=config.variant, name=options.preset)
        options, config = _parse(method_name, module, argv, defaults)
    return options, config


def _parse(
    method_name: str, module: ModuleType, argv: Sequence[str], defaults: MethodConfig
) -> tuple[RunOptions, MethodConfig]:
    parsed: Any
    command = dataclasses.make_dataclass(
        "Command",
        [("run", RunOptions), ("method", module.Config, dataclasses.field(default=defaults))],
    )
    try:
        parsed = tyro.cli(
            command,
            prog=f"python -m train {method_name}",
            description=method_summary(method_name),
            args=list(argv),
            config=(tyro.conf.OmitArgPrefixes,),
        )
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            sys.stdout.write(f"example: python -m train {method_name} --dataset demo --seed 1\n")
        raise
    return parsed.run, parsed.method


def as_words(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """The flags that set the values; those equal to their default need none."""
    words: list[str] = []
    for name, value in values.items():
        if value == defaults[name]:
            continue
        if isinstance(defaults[name], bool):
            words.append(flag(name if value else f"no_{name}"))
        elif isinstance(value, tuple):
            words += [flag(name), *map(str, value)]
        else:
            words += [flag(name), str(value)]
    return words
