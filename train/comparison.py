"""A comparison: which runs it needs, which are already there, and how the rest are trained.

Every run is one command line of `python -m train METHOD`, parsed and trained by the same code, in a
folder of its own. What is finished there is kept, what was interrupted goes on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from train import methods
from train.config import TrainingConfig, config_values, flag
from train.errors import ConfigError
from train.evidence import Record, read_metrics, record_of
from train.options import SourceOptions
from train.parsing import as_words
from train.planned import RUN_DEFAULTS, Outcome, PlannedRun, draft, method_and_kind, placed
from train.preparing import load_split
from train.running import Watcher, train_all

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
    """Hyper-parameters: `auto` (the data set's own), `released`, `fast`, `best`, `none`, a file."""
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
class Comparison:
    """All runs of a comparison, and the data set they share."""

    dataset: str
    out: Path
    runs: list[PlannedRun]
    finished: dict[PlannedRun, Record]
    """Those that need no training: they were there already."""


def plan(options: ComparisonOptions) -> Comparison:
    """Check every setting, load the data once, and look at what is there already."""
    shares = options.shares()
    unplaced = {run.name: run for run in drafts(options)}  # `seal` and `seal:nce` are one
    data, split = load_split(next(iter(unplaced.values())).options)
    out = options.out or Path("runs") / data.name / "compare"
    folders = {share: out if share == 1 else out / f"fraction-{share:g}" for share in shares}
    runs = [
        placed(run, fraction=share, seed=seed, out=folder)
        for share, folder in folders.items()
        for run in unplaced.values()
        for seed in range(options.seeds)
    ]
    records = {run: _finished(run, data.name, split.rule) for run in runs}
    finished = {run: record for run, record in records.items() if record is not None}
    return Comparison(dataset=data.name, out=out, runs=runs, finished=finished)


def drafts(options: ComparisonOptions) -> Iterator[PlannedRun]:
    """Each method once; seed, share of the rows and folder are open."""
    given = {name: getattr(options, name) for name in PASSED_ON}
    for word in options.methods.split(","):
        method, kind = method_and_kind(word)
        words = ["--dataset", options.dataset, *as_words(given, RUN_DEFAULTS)]
        if issubclass(methods.load(method).Config, TrainingConfig):
            # Others have neither epochs nor curves.
            words += [] if options.epochs is None else ["--epochs", str(options.epochs)]
            words += ["--tensorboard"] if options.tensorboard else []
        yield draft(method, kind, words)


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
    outcomes = train_all(missing, jobs, watcher)
    records = dict(comparison.finished)
    for run, outcome in outcomes.items():
        if outcome.state == "finished":
            records[run] = record_of(read_metrics(run.folder.path))
    others = {run: outcome for run, outcome in outcomes.items() if outcome.state != "finished"}
    return {run: records[run] for run in comparison.runs if run in records}, others
