"""The commands of `python -m train`: a method to train, or one of those around training."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from types import ModuleType

from rich.console import Console
from rich.table import Table

from train import methods, ranks
from train.compare_command import compare_command
from train.config import TEXT_OPTIONS, config_values
from train.data_commands import data_command
from train.display import TrainingDisplay, or_say_why_not, score_table
from train.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, ConfigError, needs_extra
from train.fill_command import fill_command
from train.listing import dataset_table, method_table
from train.parsing import parse_run
from train.preparing import Prepared, prepare
from train.results_command import results_command
from train.training import Result, train

MOST_SHOWN = 80
"""Characters of one setting."""
USAGE = """\
usage: python -m train METHOD --dataset NAME|FILE [options]
       python -m train COMMAND [options]

methods
{methods}

commands
  list [methods|datasets]  what there is, and which data sets are on this machine
  data check NAME|FILE     examine a data set: sizes, label frequencies, everything suspicious
  data show NAME|FILE      a few rows with their labels
  compare                  methods side by side over seeds, beside the papers' numbers
  results FOLDER...        add finished runs to the committed results
  fill                     train what the plan of results names and no row shows yet
  search METHOD            hyper-parameters that score best on validation rows
  report RUN...            tables and plots of finished runs, as one HTML page
  masks RUN...             test images with their true masks and those of runs, as one picture
  probe MODEL              how good the features of a model are, by logistic regressions on them

`python -m train METHOD --help` shows the options of a method.
example: python -m train seal --dataset demo
"""


def dispatch(argv: Sequence[str]) -> int:
    """Run the command that the first word names; any other word is a method to train."""
    console = Console(quiet=not ranks.is_first())
    if not argv or argv[0] in ("-h", "--help"):
        rows = (
            f"  {name:<15} {methods.summary(methods.load(name))}" for name in methods.available()
        )
        print(USAGE.format(methods="\n".join(rows)), end="")
        return EXIT_OK if argv else EXIT_USAGE
    commands: dict[str, Callable[[Console, Sequence[str]], int]] = {
        "list": _list_command,
        "data": data_command,
        "compare": compare_command,
        "results": results_command,
        "fill": fill_command,
        "report": _report_command,
        "probe": _probe_command,
        "search": _search_command,
        "masks": _masks_command,
    }
    if argv[0] in commands:
        if ranks.size() > 1:
            raise ConfigError(
                f"torchrun is for training a method: start {argv[0]!r} with `python -m train`"
            )
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


def _report() -> ModuleType:
    with needs_extra("report", "a report"):
        from train.report import command  # noqa: PLC0415 - may be missing
    return command


def _report_command(console: Console, argv: Sequence[str]) -> int:
    code: int = _report().report_command(console, argv)
    return code


def _probe_command(console: Console, argv: Sequence[str]) -> int:
    with needs_extra("report", "the plot of a probe"):
        from train.probe_command import probe_command  # noqa: PLC0415 - may be missing
    return probe_command(console, argv)


def _search_command(console: Console, argv: Sequence[str]) -> int:
    with needs_extra("search", "the search"):
        from train.search.command import search_command  # noqa: PLC0415 - may be missing
    return search_command(console, argv)


def _masks_command(console: Console, argv: Sequence[str]) -> int:
    with needs_extra("report", "drawing masks"):
        from train.masks_command import masks_command  # noqa: PLC0415 - may be missing
    return masks_command(console, argv)


def _train_command(console: Console, method_name: str, argv: Sequence[str]) -> int:
    options, config = parse_run(method_name, argv)
    command = shlex.join([*ranks.launcher(), "-m", "train", method_name, *argv])
    prepared = prepare(method_name, config, options, command)
    _print_settings(console, prepared)
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
            _report().report_run(console, result.run)
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
