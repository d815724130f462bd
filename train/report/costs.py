"""What runs cost: parameters, seconds an epoch, rows a second, beside what SEAL's paper prints.

Lee et al., NeurIPS 2022, Tables 17 to 19; their hardware was a TitanX, so only ratios compare.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from train.report.runs import FinishedRun
from train.report.tables import Column, Row, Table

PUBLISHED = Path(__file__).parents[1] / "papers" / "seal" / "costs"
ENERGY_NETWORKS = ("spen", "dvn", "nce")
IN_PAPER = ("ce", "seal", *ENERGY_NETWORKS)


@dataclass(frozen=True, kw_only=True)
class ParameterCounts:
    """Numbers of weights, counted in the networks that `model.pt` holds."""

    task: int
    energy: int
    inference: int

    @property
    def training(self) -> int:
        """Both networks."""
        return self.task + self.energy


def count_parameters(run: FinishedRun) -> ParameterCounts:
    """Count by what a weight is for: the task-net, the energy network, all that predicts."""
    predictor = run.checkpoint.predictor()
    sizes = {name: weight.numel() for name, weight in predictor.named_parameters()}
    energy = sum(size for name, size in sizes.items() if "energy_net." in name)
    teacher = sum(weight.numel() for weight in run.checkpoint.teacher.values())
    total = sum(sizes.values())
    return ParameterCounts(task=total - energy, energy=energy + teacher, inference=total)


def parameter_table(runs: Sequence[FinishedRun]) -> Table:
    """Table 17: the task-net, the energy network, both, and what is left for inference."""
    published = _published("parameters.csv", "dataset")
    rows: list[Row] = []
    for run in runs:
        counts, paper = count_parameters(run), published.get(run.dataset)
        rows.append(
            [run.name, run.dataset, counts.task or None, counts.energy or None, counts.training,
             counts.inference, *_published_sizes(run, paper)]
        )  # fmt: skip
    names = ("task-net", "energy net", "training", "inference")
    return Table(
        "parameters",
        [Column("run"), Column("data set"), *(Column(name, ",d") for name in names),
         Column("training, paper", ",d"), Column("inference, paper", ",d")],
        rows,
        "training: task-net and energy network together; networks that a method drops before its "
        "last stage, and the cost-augmented network of seal --loss margin, are not in model.pt and "
        "not counted",
    ).without_empty_columns()  # fmt: skip


def _published_sizes(run: FinishedRun, paper: dict[str, str] | None) -> list[int | None]:
    columns = {"seal": ("seal_training", "seal_inference"), "ce": ("ce", "ce")}
    if paper is None or run.checkpoint.method not in IN_PAPER:
        return [None, None]
    chosen = columns.get(run.checkpoint.method, ("energy_net", "energy_net"))
    return [int(paper[name]) for name in chosen]


def training_table(runs: Sequence[FinishedRun]) -> Table:
    """Table 19: seconds an epoch, and how many times those of `ce`."""
    published = _published("training.csv", "kind")
    rows: list[Row] = []
    for run in runs:
        base = _baseline(run, runs)
        paper = _seconds(published, run.kind, run.dataset)
        paper_base = _seconds(published, "ce", run.dataset)
        rows.append(
            [run.name, run.dataset, run.seconds_per_epoch, len(run.history),
             run.metrics["seconds"],
             _ratio(run.seconds_per_epoch, base.seconds_per_epoch if base else None),
             paper, _ratio(paper, paper_base)]
        )  # fmt: skip
    return Table(
        "training cost",
        [Column("run"), Column("data set"), Column("s an epoch", ".3g"), Column("epochs", ",d"),
         Column("s in all", ",.1f"), Column("times ce", ".2f"),
         Column("s an epoch, paper", ".2f"), Column("times ce, paper", ".2f")],
        rows,
        "s an epoch: median over the last stage, with validation; times ce: against the ce run of "
        "the same data set in this report; compare runs of one idle machine only",
    ).without_empty_columns()  # fmt: skip


def inference_table(runs: Sequence[FinishedRun]) -> Table:
    """Table 18: test rows scored in a second, and how many times those of energy networks."""
    published = _published("inference.csv", "dataset")
    rows: list[Row] = []
    for run in runs:
        base, paper = _baseline(run, runs), published.get(run.dataset)
        kind = "energy_net" if run.checkpoint.method in ENERGY_NETWORKS else "feed_forward"
        speed = fastest = None
        if paper and run.checkpoint.method in IN_PAPER:
            speed = float(paper[f"{kind}_rows_per_second"])
            fastest = float(paper["feed_forward_rows_per_second"])
        rows.append(
            [run.name, run.dataset, len(run.problem.test), _speed(run),
             _ratio(_speed(base) if base else None, _speed(run)), speed, _ratio(fastest, speed)]
        )  # fmt: skip
    return Table(
        "inference cost",
        [Column("run"), Column("data set"), Column("test rows", ",d"), Column("rows/s", ",.0f"),
         Column("times slower than ce", ".2f"), Column("rows/s, paper", ",.0f"),
         Column("times slower, paper", ".2f")],
        rows,
        "measured on the CPU while the report was made; the fastest of some tries",
    ).without_empty_columns()  # fmt: skip


def _speed(run: FinishedRun) -> float:
    return len(run.problem.test) / run.seconds_to_score


def _baseline(run: FinishedRun, runs: Sequence[FinishedRun]) -> FinishedRun | None:
    return next((r for r in runs if r.checkpoint.method == "ce" and r.dataset == run.dataset), None)


def _published(file: str, key: str) -> dict[str, dict[str, str]]:
    with (PUBLISHED / file).open(encoding="utf-8", newline="") as lines:
        return {row[key]: row for row in csv.DictReader(lines)}


def _seconds(table: dict[str, dict[str, str]], kind: str, dataset: str) -> float | None:
    value = table.get(kind, {}).get(dataset)
    return None if value is None else float(value)


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value and base else None
