"""The commands of `python -m train`: a method to train, or one of those around training."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from train import methods
from train.config import (
    MethodConfig,
    TrainingConfig,
    config_values,
    find_preset,
    read_preset,
)
from train.data_commands import data_command
from train.display import TrainingDisplay, score_table
from train.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, ConfigError
from train.listing import dataset_table, method_table
from train.options import RunOptions
from train.training import Prepared, prepare, train

USAGE = """\
usage: python -m train METHOD --dataset NAME|FILE [options]
       python -m train COMMAND [options]

methods
{methods}

commands
  list [methods|datasets]  what there is, and which data sets are on this machine
  data check NAME|FILE     examine a data set: sizes, label frequencies, everything suspicious
  data show NAME|FILE      a few rows with their labels

`python -m train METHOD --help` shows the options of a method.
example: python -m train seal --dataset demo
"""


def dispatch(argv: Sequence[str]) -> int:
    """Run the command that the first word names; any other word is a method to train."""
    console = Console()
    if not argv or argv[0] in ("-h", "--help"):
        rows = (
            f"  {name:<8} {methods.summary(methods.load(name))}" for name in methods.available()
        )
        print(USAGE.format(methods="\n".join(rows)), end="")
        return EXIT_OK if argv else EXIT_USAGE
    commands: dict[str, Callable[[Console, Sequence[str]], int]] = {
        "list": _list_command,
        "data": data_command,
    }
    if argv[0] in commands:
        return commands[argv[0]](console, argv[1:])
    return _train_command(console, argv[0], argv[1:])


def _list_command(console: Console, argv: Sequence[str]) -> int:
    tables: dict[str, Callable[[], Table]] = {
        "methods": method_table,
        "datasets": lambda: dataset_table(console.width),
    }
    unknown = [word for word in argv if word not in tables]
    if unknown:
        raise ConfigError(f"cannot list {unknown[0]!r}: python -m train list [methods|datasets]")
    for word in argv or tables:
        console.print(tables[word]())
    return EXIT_OK


def _train_command(console: Console, method_name: str, argv: Sequence[str]) -> int:
    options, config = parse_run(method_name, argv)
    command = shlex.join(["python", "-m", "train", method_name, *argv])
    prepared = prepare(method_name, config, options, command)
    _print_settings(console, prepared)
    epochs = config.epochs if isinstance(config, TrainingConfig) else 0
    with TrainingDisplay(console, epochs=epochs, enabled=options.progress) as display:
        result = train(prepared, display)
    position = result.position
    title = f"{prepared.data.name}, {method_name}, seed {options.seed}"
    if position.epoch:
        title += f", best epoch {position.best_epoch} of {position.epoch}"
    console.print(score_table(title, result.judgement))
    if result.interrupted:
        held = "an untrained model: its stage had not begun" if result.stages_left else "the best"
        print(f"interrupted; {result.run.model} holds {held} so far. Go on with:")
        print(f"  {_resuming(command)}")
        return EXIT_INTERRUPTED
    print(f"saved {result.run.model} after {position.seconds:.1f} s of training. Next:")
    print(f"  python -m export {shlex.quote(str(result.run.model))}")
    return EXIT_OK


def _resuming(command: str) -> str:
    words = [word for word in shlex.split(command) if word not in ("--overwrite", "--resume")]
    return shlex.join([*words, "--resume"])


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
            description=methods.summary(module),
            args=list(argv),
            config=(tyro.conf.OmitArgPrefixes,),
        )
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            print(f"example: python -m train {method_name} --dataset demo --seed 1")
        raise
    return parsed.run, parsed.method


def _print_settings(console: Console, prepared: Prepared) -> None:
    data, sizes = prepared.data, prepared.split.sizes()
    console.print(
        f"[bold]{prepared.method_name}[/] on [bold]{data.name}[/]: {data.n_features} features, "
        f"{data.n_labels} labels, {sizes[0]}/{sizes[1]}/{sizes[2]} rows "
        f"({prepared.split.rule}), {prepared.problem.device}"
    )
    values = ", ".join(f"{k} {v}" for k, v in config_values(prepared.config).items())
    console.print(values, style="dim", highlight=False)
