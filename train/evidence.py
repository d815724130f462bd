"""What runs gave: read from run folders, kept as one row a run in `train/results/DATASET.csv`."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
import statistics
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from train import methods
from train.config import MethodConfig, config_from, config_values, find_preset, read_preset
from train.errors import ConfigError, DataError
from train.run import RunFolder, write_text

KEPT_SCORES = (
    "fixed.example_f1", "fixed.micro_f1", "fixed.macro_f1", "fixed.hamming_accuracy",
    "fixed.precision@1",
    "tuned.example_f1", "tuned.micro_f1", "tuned.macro_f1", "tuned.hamming_accuracy",
)  # fmt: skip
MASK_SCORES = (
    "fixed.mean_iou", "fixed.global_iou", "fixed.pixel_accuracy",
    "tuned.mean_iou", "tuned.global_iou",
)  # fmt: skip
"""Of runs on images, in place of all others."""
SPAN_SCORES = (
    "fixed.span_f1", "fixed.span_precision", "fixed.span_recall", "fixed.word_accuracy",
    "fixed.core_role_violations", "fixed.constrained_span_f1",
)  # fmt: skip
"""Of runs on words, in place of all others."""
LOW_METRICS = ("core_role_violations", "balanced_error")
"""The lower, the better."""
TAIL_SCORES = (
    "fixed.precision@3", "fixed.precision@5", "fixed.psp@1", "fixed.psp@3", "fixed.psp@5",
    *(f"fixed.pair_recall@{k}_quantile_{part}" for k in (1, 10, 50)
      for part in ("head", "torso", "tail")),
)  # fmt: skip
"""How frequent and rare labels fare; kept of runs since they are measured."""
DIGITS = 6
LOCAL_FLAGS = {"--out": 1, "--data-dir": 1, "--resume": 0, "--overwrite": 0, "--no-progress": 0,
               "--report": 0, "--no-report": 0, "--tensorboard": 0}  # fmt: skip
"""Flags, and how many values each has, that say where a run was and not what it was."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A finished run."""

    dataset: str
    method: str
    """With its kind, where it has several: `seal:nce`."""
    preset: str
    changed: str
    """Hyper-parameters that were not those of the preset, as `name=value`."""
    seed: int
    split: str
    split_seed: int
    fraction: float
    epochs: int
    best_epoch: int
    seconds: float
    command: str
    commit: str
    """`unknown` where there was no checkout."""
    scores: dict[str, float]
    """By group and metric, such as `fixed.example_f1`."""

    @property
    def setting(self) -> tuple[str, str, str]:
        """What runs that differ in the seed alone have in common, in one table."""
        return self.method, self.preset, self.changed

    @property
    def name(self) -> str:
        """The setting, as tables call it."""
        extras = [f"preset {self.preset}"] * (self.preset != "auto")
        extras += [self.changed] * bool(self.changed)
        return f"{self.method} ({', '.join(extras)})" if extras else self.method

    @property
    def table(self) -> tuple[str, int, float]:
        """Runs are compared on the same rows: split, its seed, share of the training rows."""
        return self.split, self.split_seed, self.fraction

    @property
    def key(self) -> tuple[Any, ...]:
        """A later run with the same key replaces an earlier one."""
        return self.dataset, *self.table, *self.setting, self.seed


PLAIN_FIELDS = [field.name for field in fields(Record) if field.name != "scores"]
NUMBERS = {"seed": int, "split_seed": int, "fraction": float, "epochs": int, "best_epoch": int,
           "seconds": float}  # fmt: skip


def kept_scores(known: Container[str]) -> tuple[str, ...]:
    """The scores that are kept of runs with these: of masks, or of labels."""
    own = (scores for scores in (MASK_SCORES, SPAN_SCORES) if scores[0] in known)
    return next(own, KEPT_SCORES)


def full_name(method: str, kind: str) -> str:
    """`seal:nce`, or `ce` where there is only one kind."""
    return f"{method}:{kind}" if kind else method


def read_metrics(folder: Path) -> dict[str, Any]:
    """The `metrics.json` of a run folder."""
    path = RunFolder(folder).metrics
    try:
        metrics: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path} is no JSON, it was changed or damaged: train again") from error
    if not isinstance(metrics, dict) or not {"scores", "config", "finished"} <= set(metrics):
        raise DataError(f"{path} is not of a run of this version: train again")
    return metrics


def record_of(metrics: dict[str, Any]) -> Record:
    """The record of a finished run, from its `metrics.json`."""
    split = metrics["split"]
    config_class = methods.load(metrics["method"]).Config
    config = config_from(metrics["config"], config_class, source="metrics.json")
    preset = metrics.get("preset", "auto")  # early runs kept neither it nor the commit
    return Record(
        dataset=metrics["dataset"],
        method=full_name(metrics["method"], config.variant),
        preset=preset,
        changed=changed_settings(metrics["method"], config, metrics["dataset"], preset),
        seed=metrics["seed"],
        split=split["rule"],
        split_seed=split["seed"],
        fraction=float(split["fraction"]),
        epochs=metrics["epochs"],
        best_epoch=metrics["best_epoch"],
        seconds=metrics["seconds"],
        command=without_places(metrics["command"]),
        commit=metrics.get("commit") or "unknown",
        scores={
            f"{group}.{metric}": value
            for group, values in metrics["scores"].items()
            for metric, value in values.items()
        },
    )


def changed_settings(method: str, config: MethodConfig, dataset: str, preset: str) -> str:
    """Hyper-parameters other than those that the preset has for this kind, as `name=value`."""
    expected = preset_values(method, config.variant, dataset, preset)
    used = config_values(config) | config.KINDS.get(config.variant, {})
    changes = (f"{key}={value}" for key, value in used.items() if value != expected[key])
    return " ".join(change.replace(" ", "") for change in changes)


def preset_values(method: str, kind: str, dataset: str, preset: str) -> dict[str, Any]:
    """The hyper-parameters that a preset has for a kind of a method, defaults included."""
    config_class = methods.load(method).Config
    path = find_preset(preset, dataset, method)
    if path is None:
        expected = config_class()
    else:
        expected = read_preset(path, config_class, variant=kind, name=preset)
    values: dict[str, Any] = config_values(expected) | config_class.KINDS.get(kind, {})
    return values


def without_places(command: str) -> str:
    """A command without the flags that name folders of this machine."""
    words, kept = shlex.split(command), []
    while words:
        word = words.pop(0)
        name, equals, _ = word.partition("=")
        if name not in LOCAL_FLAGS:
            kept.append(word)
        elif not equals:
            del words[: LOCAL_FLAGS[name]]
    return shlex.join(kept)


def run_folders(places: Iterable[Path]) -> list[Path]:
    """Every folder with a `metrics.json`, at the places or anywhere below them."""
    found = []
    for place in places:
        below = sorted(path.parent for path in place.rglob("metrics.json"))
        if not below:
            raise DataError(f"there is no run in {place}: name a folder that training wrote")
        found += below
    return found


def read_results(path: Path) -> list[Record]:
    """The rows of a file of results; none where there is no file yet."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        return [_from_row(row) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is no file of results, or was changed by hand: {error}") from error


def all_results(folder: Path) -> dict[str, list[Record]]:
    """Every row of the files of a folder, by data set."""
    if not folder.is_dir():
        raise ConfigError(
            f"there is no folder {folder}: run this in the repository's root, or give --into"
        )
    return {path.stem: read_results(path) for path in sorted(folder.glob("*.csv"))}


def _from_row(row: dict[str, str]) -> Record:
    plain: dict[str, Any] = {name: NUMBERS.get(name, str)(row[name]) for name in PLAIN_FIELDS}
    scores = {name: float(row[name]) for name in kept_scores(row)}
    scores |= {name: float(row[name]) for name in TAIL_SCORES if row.get(name)}
    return Record(**plain, scores=scores)


def add_results(records: Sequence[Record], folder: Path) -> dict[Path, int]:
    """Add rows to the files of their data sets; return how many each file has now."""
    sizes = {}
    for dataset in sorted({record.dataset for record in records}):
        path = folder / f"{dataset}.csv"
        rows = {record.key: record for record in read_results(path)}
        rows |= {record.key: record for record in records if record.dataset == dataset}
        write_text(path, results_text([rows[key] for key in sorted(rows)]))
        sizes[path] = len(rows)
    return sizes


def results_text(records: Sequence[Record]) -> str:
    """The records as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    first, last = PLAIN_FIELDS[:8], PLAIN_FIELDS[8:]
    kept = kept_scores(records[0].scores if records else ())
    tail_scores = TAIL_SCORES if kept is KEPT_SCORES else ()
    writer.writerow([*first, *kept, *last, *tail_scores])
    for record in records:
        scores = [round(record.scores[name], DIGITS) for name in kept]
        tail = [round(record.scores[n], DIGITS) if n in record.scores else "" for n in tail_scores]
        plain = [[getattr(record, name) for name in names] for names in (first, last)]
        writer.writerow([*plain[0], *scores, *plain[1], *tail])
    return text.getvalue()


@dataclass(frozen=True)
class Mean:
    """Mean and deviation over seeds."""

    value: float
    deviation: float | None
    """Of the sample, n - 1 in the denominator; None for a single seed."""

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.4f}"
        return f"{self.value:.4f}{spread}"


def mean_score(records: Sequence[Record], score: str) -> Mean | None:
    """Mean over the records that have this score; None where none has."""
    values = [record.scores[score] for record in records if score in record.scores]
    if not values:
        return None
    return Mean(math.fsum(values) / len(values), statistics.stdev(values) if values[1:] else None)


def goodness(mean: Mean | None, score: str) -> float:
    """What the best mean of a score has the most of; least of all, none."""
    if mean is None:
        return -math.inf
    return -mean.value if score.rpartition(".")[2] in LOW_METRICS else mean.value
