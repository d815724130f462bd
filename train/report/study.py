"""Runs that differ in one setting alone: score and cost against its value."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from train.report.runs import FinishedRun
from train.report.tables import Column, Table


@dataclass(frozen=True)
class Study:
    """Runs of one method and data set, by the value of the setting; seeds may repeat a value."""

    setting: str
    runs: list[tuple[float, FinishedRun]]

    @property
    def title(self) -> str:
        """What is varied, where."""
        first = self.runs[0][1]
        return f"{first.kind} on {first.dataset}: {self.setting.replace('_', ' ')}"

    def table(self) -> Table:
        """Score and cost of every run."""
        rows = [
            [value, run.name, run.fixed["example_f1"], run.metrics["scores"]["tuned"]["example_f1"],
             run.seconds_per_epoch]
            for value, run in self.runs
        ]  # fmt: skip
        return Table(
            "score and cost",
            [Column(self.setting.replace("_", " "), "g"), Column("run"),
             Column("example-F1", ".4f"), Column("tuned", ".4f"), Column("s an epoch", ".3g")],
            rows,
        )  # fmt: skip


def find_studies(runs: Sequence[FinishedRun]) -> list[Study]:
    """Group the runs that agree in all settings but one number, which takes two values or more."""
    settings = [_settings(run) for run in runs]
    studies = []
    for name in sorted({name for values in settings for name in values}):
        groups: dict[str, list[tuple[float, FinishedRun]]] = {}
        for run, values in zip(runs, settings, strict=True):
            value = values.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                same = {key: values[key] for key in values if key != name}
                group = groups.setdefault(json.dumps(same, sort_keys=True), [])
                group.append((float(value), run))
        for found in groups.values():
            if len({value for value, _ in found}) > 1:
                studies.append(Study(name, sorted(found, key=lambda pair: (pair[0], pair[1].name))))
    return studies


def _settings(run: FinishedRun) -> dict[str, object]:
    """All that makes the run what it is, but for its seed."""
    checkpoint = run.checkpoint
    return {
        **checkpoint.config,
        "method": checkpoint.method,
        "dataset": checkpoint.dataset,
        "split": checkpoint.split["rule"],
        "split_seed": str(checkpoint.split["seed"]),
        "fraction": checkpoint.split["fraction"],
    }
