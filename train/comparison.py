"""A comparison: which runs it needs, which are already there, and how the rest are trained.

Every run is one command line of `python -m train METHOD`, parsed and trained by the same code, in a
folder of its own. What is finished there is kept, what was interrupted goes on.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import multiprocessing
import shlex
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import tyro
from torch import Tensor

from train import methods
from train.config import MethodConfig, TrainingConfig, config_values, flag
from train.errors import ConfigError, UserError, did_you_mean
from train.evidence import Record, full_name, read_metrics, record_of
from train.interruption import interruptions
from train.loop import Position
from train.options import RunOptions, SourceOptions
from train.parsing import as_words, parse_run
from train.preparing import load_split, prepare
from train.run import RunFolder
from train.training import Display, train

POLL_SECONDS = 0.5
RUN_DEFAULTS = {field.name: field.default for field in dataclasses.fields(RunOptions)}
PASSED_ON = [field.name for field in dataclasses.fields(SourceOptions) if field.name != "dataset"]
PASSED_ON += ["preset", "device", "threads"]


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions(SourceOptions):
    """What is compared, on what rows."""

    methods: Annotated[str, tyro.conf.arg(metavar="A,B:KIND,...")]
    """Methods, with a kind after a colon where they have several: ce,seal,seal:margin."""
    seeds: int = 3
    """Runs of each method, with the seeds 0, 1, ..."""
    fraction: Annotated[str, tyro.conf.arg(metavar="SHARES")] = "1"
    """Shares of the training rows to use, such as 0.1,0.5,1; a table for each."""
    preset: str = "auto"
    """Hyper-parameters: `auto` (the data set's own), `released`, `fast`, `none`, a .toml file."""
    epochs: int | None = None
    """Passes over the training rows, at most; unless told those of each preset."""
    device: str = "auto"
    """`cpu`, `cuda`, `cuda:N`, or `auto`: the GPU where there is one."""
    threads: int = 1
    """CPU threads of each run."""
    jobs: int = 1
    """Runs at the same time, each in a process of its own."""
    tensorboard: bool = False
    """Write losses and validation scores for TensorBoard into each run folder."""
    out: Path | None = None
    """Folder of the run folders; unless told runs/DATASET/compare. What is finished is kept."""

    def __post_init__(self) -> None:
        for name in ("seeds", "jobs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} must be at least 1, got {getattr(self, name)}")

    def shares(self) -> list[float]:
        """The fractions, in the order given."""
        try:
            shares = [float(word) for word in self.fraction.split(",")]
        except ValueError as error:
            raise ConfigError(
                f"--fraction must be numbers such as 0.1,0.5,1, got {self.fraction}"
            ) from error
        for share in shares:
            if not 0 < share <= 1:
                raise ConfigError(f"--fraction must be above 0 and at most 1, got {share:g}")
        return list(dict.fromkeys(shares))


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of a comparison, with all its settings."""

    name: str
    """Method with its kind."""
    method: str
    config: MethodConfig
    options: RunOptions
    command: str

    @property
    def folder(self) -> RunFolder:
        """Where it goes."""
        assert self.options.out is not None  # noqa: S101 - `plan` names one for each
        return RunFolder(self.options.out)

    @property
    def epochs(self) -> int:
        """How many it may take, in each stage; one where it is fitted in one go."""
        return self.config.epochs if isinstance(self.config, TrainingConfig) else 1

    def __str__(self) -> str:
        share = "" if self.options.fraction == 1 else f", {self.options.fraction:g} of the rows"
        return f"{self.name}, seed {self.options.seed}{share}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All runs of a comparison, and the data set they share."""

    dataset: str
    out: Path
    runs: list[PlannedRun]
    finished: dict[PlannedRun, Record]
    """Those that need no training: they were there already."""


class Watcher(Protocol):
    """Whoever shows how the runs go on."""

    def started(self, run: PlannedRun) -> None:
        """Its training begins, or goes on."""

    def epochs_done(self, run: PlannedRun, epochs: int, best: float | None) -> None:
        """So many epochs are done, in all stages; the best validation score of the last one."""

    def ended(self, run: PlannedRun, outcome: Outcome) -> None:
        """It is finished, or was interrupted, or has failed."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    state: Literal["finished", "interrupted", "failed"]
    reason: str = ""
    """Why it failed."""


def plan(options: ComparisonOptions) -> Comparison:
    """Check every setting, load the data once, and look at what is there already."""
    shares = options.shares()
    drafts = {draft.name: draft for draft in _drafts(options)}  # `seal` and `seal:nce` are one
    data, split = load_split(next(iter(drafts.values())).options)
    out = options.out or Path("runs") / data.name / "compare"
    runs = [
        _run_of(draft, share, seed, out)
        for share in shares
        for draft in drafts.values()
        for seed in range(options.seeds)
    ]
    records = {run: _finished(run, data.name, split.rule) for run in runs}
    finished = {run: record for run, record in records.items() if record is not None}
    return Comparison(dataset=data.name, out=out, runs=runs, finished=finished)


def _names(words: str) -> list[tuple[str, str]]:
    """Method and kind of each word, which is `METHOD` or `METHOD:KIND`."""
    names = []
    for word in words.split(","):
        method, _, kind = word.strip().partition(":")
        kinds = methods.load(method).Config.KINDS
        if kind and kind not in kinds:
            known = did_you_mean(kind, kinds) if kinds else "it has only one"
            raise ConfigError(f"there is no kind {kind!r} of method {method}: {known}")
        names.append((method, kind))
    return names


def _drafts(options: ComparisonOptions) -> Iterator[PlannedRun]:
    """Each method once, parsed as a command line; seed, share of the rows and folder are open."""
    given = {name: getattr(options, name) for name in PASSED_ON}
    for method, kind in _names(options.methods):
        config_class = methods.load(method).Config
        words = as_words(config_class.KINDS.get(kind, {}), vars(config_class()))
        words += ["--dataset", options.dataset, *as_words(given, RUN_DEFAULTS)]
        if issubclass(config_class, TrainingConfig):  # others have neither epochs nor curves
            words += [] if options.epochs is None else ["--epochs", str(options.epochs)]
            words += ["--tensorboard"] if options.tensorboard else []
        run_options, config = parse_run(method, words)
        if kind and config.variant != kind:
            raise ConfigError(
                f"--preset {options.preset} makes {method}:{kind} a {method}:{config.variant}: "
                "compare it under that name, or take another preset"
            )
        yield PlannedRun(
            name=full_name(method, config.variant),
            method=method,
            config=config,
            options=run_options,
            command=shlex.join(["python", "-m", "train", method, *words]),
        )


def _run_of(draft: PlannedRun, share: float, seed: int, out: Path) -> PlannedRun:
    folder = out if share == 1 else out / f"fraction-{share:g}"
    choice: dict[str, Any] = {
        "fraction": share,
        "seed": seed,
        "out": folder / f"{draft.name.replace(':', '-')}-{seed}",
    }
    return dataclasses.replace(
        draft,
        options=dataclasses.replace(draft.options, **choice),
        command=f"{draft.command} {shlex.join(as_words(choice, RUN_DEFAULTS))}",
    )


def _finished(run: PlannedRun, dataset: str, rule: str) -> Record | None:
    """What the run gave, if it is in its folder and finished; another run there is a mistake."""
    if not run.folder.metrics.is_file():
        return None
    metrics = read_metrics(run.folder.path)
    split = metrics["split"]
    found = {
        **metrics["config"],
        "method": metrics["method"],
        "dataset": metrics["dataset"],
        "seed": metrics["seed"],
        "split": split["rule"],
        "split_seed": split["seed"],
        "fraction": split["fraction"],
    }
    options = run.options
    wanted = {
        **config_values(run.config),
        "method": run.method,
        "dataset": dataset,
        "seed": options.seed,
        "split": rule,
        "split_seed": options.split_seed,
        "fraction": options.fraction,
    }
    for name, value in wanted.items():
        if found.get(name) != value:
            raise ConfigError(
                f"{run.folder.path} holds a run of another comparison, with {flag(name)} "
                f"{found.get(name)}, not {value}: give this one another --out"
            )
    return record_of(metrics) if metrics["finished"] else None


def run_all(
    comparison: Comparison, jobs: int, watcher: Watcher
) -> tuple[dict[PlannedRun, Record], dict[PlannedRun, Outcome]]:
    """Train what is missing; return the records of all finished runs, and how others ended.

    A run that fails, for example by divergence, does not keep the others from being trained.
    After an interruption the runs that were not begun are in neither.
    """
    missing = [run for run in comparison.runs if run not in comparison.finished]
    if jobs == 1:
        outcomes = _one_after_the_other(missing, watcher)
    else:
        outcomes = _side_by_side(missing, jobs, watcher)
    records = dict(comparison.finished)
    for run, outcome in outcomes.items():
        if outcome.state == "finished":
            records[run] = record_of(read_metrics(run.folder.path))
    others = {run: outcome for run, outcome in outcomes.items() if outcome.state != "finished"}
    return {run: records[run] for run in comparison.runs if run in records}, others


def _one_after_the_other(runs: Sequence[PlannedRun], watcher: Watcher) -> dict[PlannedRun, Outcome]:
    outcomes = {}
    for run in runs:
        watcher.started(run)
        outcomes[run] = train_planned(
            run, _EpochCounter(functools.partial(watcher.epochs_done, run))
        )
        watcher.ended(run, outcomes[run])
        if outcomes[run].state == "interrupted":
            break
    return outcomes


class _EpochCounter:
    """Passes on how many epochs are done and how good the best is, and nothing else."""

    def __init__(self, tell: Callable[[int, float | None], None]) -> None:
        self.tell = tell

    def on_step(self, position: Position, n_steps: int, losses: dict[str, Tensor]) -> None:
        pass

    def on_epoch(self, position: Position) -> None:
        self.tell(position.epoch, position.best_score if position.best_weights else None)


def train_planned(run: PlannedRun, display: Display) -> Outcome:
    """Begin a run, or go on with it where it was interrupted."""
    has_state = run.folder.resume.is_file()
    # Without a state nothing of an earlier attempt can be used.
    options = dataclasses.replace(run.options, resume=has_state, overwrite=not has_state)
    try:
        prepared = prepare(run.method, run.config, options, run.command)
        result = train(prepared, display)
    except UserError as error:
        return Outcome("failed", str(error))
    return Outcome("interrupted" if result.interrupted else "finished")


def _side_by_side(
    runs: Sequence[PlannedRun], jobs: int, watcher: Watcher
) -> dict[PlannedRun, Outcome]:
    """Train each run in a process of its own, `jobs` of them at a time."""
    waiting, outcomes = list(runs), {}
    running: dict[Connection, tuple[PlannedRun, BaseProcess]] = {}
    with interruptions() as interrupted:
        while running or waiting:
            if interrupted.is_set():
                waiting.clear()
                _stop(running)
            while waiting and len(running) < jobs:
                running |= _spawned(waiting.pop(0), watcher)
            for connection in wait(list(running), timeout=POLL_SECONDS):
                run, process = running.pop(connection)  # type: ignore[call-overload]
                outcomes[run] = _outcome(connection, process)  # type: ignore[arg-type]
                watcher.ended(run, outcomes[run])
            for run, _ in running.values():
                watcher.epochs_done(run, *_epochs_in(run.folder.history))
    return outcomes


def _stop(running: dict[Connection, tuple[PlannedRun, BaseProcess]]) -> None:
    """Ask every process to save its state and end, and wait until all have done so."""
    for _, process in running.values():
        process.terminate()
    for _, process in running.values():
        process.join()


def _spawned(run: PlannedRun, watcher: Watcher) -> dict[Connection, tuple[PlannedRun, BaseProcess]]:
    # Forking a process that has used torch's threads or a GPU would leave them broken.
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(run, sender))
    process.start()
    sender.close()
    watcher.started(run)
    return {receiver: (run, process)}


def _child(run: PlannedRun, sender: Connection) -> None:
    # Ctrl-C reaches the parent too, which asks by SIGTERM; training answers to both.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The parent reads how many epochs are done from the run folder.
    unheard = _EpochCounter(lambda epochs, best: None)
    sender.send(dataclasses.astuple(train_planned(run, unheard)))


def _outcome(connection: Connection, process: BaseProcess) -> Outcome:
    """What the child said; one that said nothing was ended before its first step, or by a bug."""
    try:
        return Outcome(*connection.recv())
    except EOFError:
        process.join()
    if process.exitcode == -signal.SIGTERM:
        return Outcome("interrupted")
    return Outcome("failed", f"its process ended with code {process.exitcode}")


def _epochs_in(history: Path) -> tuple[int, float | None]:
    """Epochs done, and the best validation score of the stage that goes on."""
    try:
        lines = history.read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0, None  # the first epoch is not done
    epochs = [json.loads(line) for line in lines]
    if not epochs:
        return 0, None
    stage = [epoch for epoch in epochs if epoch["stage"] == epochs[-1]["stage"]]
    score = next(name for name in stage[0] if name.startswith("validation_"))
    return int(epochs[-1]["epoch"]), max(epoch[score] for epoch in stage)
