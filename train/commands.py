"""The commands of `python -m train`: a method to train, or one of those around training."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from rich.console import Console

from train import ranks
from train.config import TEXT_OPTIONS, config_values
from train.display import TrainingDisplay, or_say_why_not, score_table
from train.errors import EXIT_INTERRUPTED, EXIT_OK, ConfigError, needs_extra
from train.members import with_members
from train.parsing import parse_run
from train.planned import Outcome, PlannedRun
from train.preparing import Prepared, prepare
from train.running import train_planned
from train.training import Result, train

MOST_SHOWN = 80
"""Characters of one setting."""


class Command(NamedTuple):
    """Where a command is, and what it needs beside torch. Others start faster without it."""

    module: str
    extra: str = "train"
    purpose: str = "training"


COMMANDS = {
    "list": Command("train.listing"),
    "data": Command("train.data_commands"),
    "compare": Command("train.compare_command"),
    "results": Command("train.results_command"),
    "fill": Command("train.fill_command"),
    "report": Command("train.report.command", "report", "a report"),
    "probe": Command("train.probe_command", "report", "the plot of a probe"),
    "search": Command("train.search.command", "search", "the search"),
    "masks": Command("train.masks_command", "report", "drawing masks"),
}
"""By name; the function to call is NAME_command of the module."""


def dispatch(argv: Sequence[str]) -> int:
    """Run the command that the first word names; any other word is a method to train."""
    console = Console(quiet=not ranks.is_first())
    if argv[0] in COMMANDS:
        if ranks.size() > 1:
            raise ConfigError(
                f"torchrun is for training a method: start {argv[0]!r} with `python -m train`"
            )
        run = getattr(_module(argv[0]), f"{argv[0]}_command")
        code: int = run(console, argv[1:])
        return code
    return _train_command(console, argv[0], argv[1:])


def _module(name: str) -> ModuleType:
    command = COMMANDS[name]
    with needs_extra(command.extra, command.purpose):
        return import_module(command.module)


def _train_command(console: Console, method_name: str, argv: Sequence[str]) -> int:
    options, config = parse_run(method_name, argv)
    command = shlex.join([*ranks.launcher(), "-m", "train", method_name, *argv])
    prepared = prepare(method_name, config, options, command)
    _print_settings(console, prepared)
    complete = with_members(prepared, lambda run: _train_member(console, run))
    if complete is None:
        print(f"interrupted; go on with:\n  {command}")
        return EXIT_INTERRUPTED
    prepared = complete
    try:
        with TrainingDisplay(console, enabled=options.progress and ranks.is_first()) as display:
            result = train(prepared, display)
        if ranks.is_first():
            _tell(console, prepared, result)
        ranks.barrier()  # torchrun ends those that remain when one ends otherwise than with 0
    except ranks.RankLostError as error:
        raise ranks.RankLostError(
            f"{error}; {prepared.run.path} keeps what was saved. Go on with:\n"
            f"  {_resuming(command)}"
        ) from error
    return EXIT_INTERRUPTED if result.interrupted else EXIT_OK


def _train_member(console: Console, run: PlannedRun) -> Outcome:
    console.print(f"{run.name}, preset {run.options.preset}, seed {run.options.seed}:")
    with TrainingDisplay(console, enabled=run.options.progress) as display:
        return train_planned(run, display)


def _tell(console: Console, prepared: Prepared, result: Result) -> None:
    """Say how training ended, and what to do next."""
    position = result.position
    title = f"{prepared.data.name}, {prepared.method_name}, seed {prepared.options.seed}"
    if position.epoch:
        title += f", best epoch {position.best_epoch} of {position.epoch}"
    console.print(score_table(title, result.judgement))
    if result.interrupted:
        held = "an untrained model: its stage had not begun" if result.stages_left else "the best"
        print(f"interrupted; {result.run.model} holds {held} so far. Go on with:")
        print(f"  {_resuming(prepared.command)}")
        return
    if prepared.options.report:
        with or_say_why_not(console):
            _module("report").report_run(console, result.run)
    print(f"saved {result.run.model} after {position.seconds:.1f} s of training. Next:")
    print(f"  python -m export {shlex.quote(str(result.run.model))}")


def _resuming(command: str) -> str:
    words = [word for word in shlex.split(command) if word not in ("--overwrite", "--resume")]
    return shlex.join([*words, "--resume"])


def _print_settings(console: Console, prepared: Prepared) -> None:
    data, sizes = prepared.data, prepared.split.sizes()
    n_features = prepared.problem.shape.n_features
    image = data.image
    what = f"{n_features} features, {data.n_labels} labels"
    if image is not None:
        what = f"images of {image.height} x {image.width} pixels"
    console.print(
        f"[bold]{prepared.method_name}[/] on [bold]{data.name}[/]: {what}, "
        f"{sizes[0]}/{sizes[1]}/{sizes[2]} rows ({prepared.split.rule}), {prepared.problem.device}"
    )
    unused = TEXT_OPTIONS if prepared.texts is None else ()
    values = config_values(prepared.config).items()
    told = ", ".join(f"{name} {_short(value)}" for name, value in values if name not in unused)
    console.print(told, style="dim", highlight=False)


def _short(value: object) -> str:
    """A value as it is shown; what describes whole models would fill the screen."""
    text = str(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
