"""`python -m train probe MODEL --dataset NAME|FILE`: how good the features of a model are."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console

from train.checkpoint import load_checkpoint
from train.config import Monitor
from train.data import propensity_constants
from train.display import SHOWN_RANKING_METRICS, SHOWN_SET_METRICS
from train.errors import EXIT_OK, ConfigError
from train.options import DataOptions
from train.preparing import load_split
from train.probe import PENALTIES, Point, chosen, probe
from train.problem import make_problem, resolve_device
from train.report.figures import probe_curves
from train.report.tables import Column, Row, Table, for_terminal
from train.run import write_text
from train.texts import encoded_like

DESCRIPTION = "Measure the frozen features of a trained model by logistic regressions on them."
EXAMPLE = "example: python -m train probe runs/demo/ce-0/model.pt --dataset demo"
LOW = ("balanced_error",)
"""Of the shown metrics, those that are better when lower."""


@dataclass(frozen=True, kw_only=True)
class ProbeOptions(DataOptions):
    """What to probe, on which rows."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A model.pt of a method that trains a feed-forward network."""
    monitor: Monitor = "tuned_mean_f1"
    """By what the penalty is chosen on validation rows."""
    device: str = "auto"
    """`cpu`, `cuda`, `cuda:N`, or `auto`: the GPU where there is one."""
    threads: int = 1
    """CPU threads."""
    out: Path | None = None
    """Folder for probe.json and probe.svg; unless told probe-DATASET beside the model."""


def probe_command(console: Console, argv: Sequence[str]) -> int:
    """Probe, print the table, write both files."""
    options = _parse(argv)
    if options.threads < 1:
        raise ConfigError(f"--threads must be at least 1, got {options.threads}")
    torch.set_num_threads(options.threads)
    device = resolve_device(options.device)
    checkpoint = load_checkpoint(options.model)
    data, split = load_split(options)
    # Rows as the user has them: the model brings its own scaling.
    texts = encoded_like(data, checkpoint.text, checkpoint.shape, device)
    problem = make_problem(data, split, device, "none", texts)
    out = options.out or options.model.parent / f"probe-{data.name}"
    _make_folder(out)
    points = []
    constants = propensity_constants(data.name)
    with console.status("probing") as status:
        for point in probe(checkpoint, problem, monitor=options.monitor, constants=constants):
            points.append(point)
            status.update(f"probing: {len(points)} of {len(PENALTIES)} penalties")
    best = chosen(points)
    console.print(for_terminal(score_table(f"{checkpoint.name} on {data.name}", points, best)))
    written = {
        "model": str(options.model),
        "method": checkpoint.method,
        "trained_on": checkpoint.dataset,
        "dataset": data.name,
        "split": {"rule": split.rule, "seed": options.split_seed, "fraction": options.fraction},
        "monitor": options.monitor,
        "command": shlex.join(["python", "-m", "train", "probe", *argv]),
        "chosen": asdict(best),
        "oracle": {key: {"penalty": p, "value": v} for key, (p, v) in oracle(points).items()},
        "path": [asdict(point) for point in points],
    }
    _write(out, written, probe_curves(points, best))
    console.print(f"saved {out / 'probe.json'} and {out / 'probe.svg'}", highlight=False)
    return EXIT_OK


def shown_metrics(point: Point) -> dict[str, str]:
    """The metrics of the table that there are, with their names."""
    names = SHOWN_SET_METRICS | SHOWN_RANKING_METRICS
    return {key: name for key, name in names.items() if key in point.test}


def oracle(points: Sequence[Point]) -> dict[str, tuple[float, float]]:
    """For each metric the penalty that is best on the test rows themselves, and its value."""
    best = {}
    for key in shown_metrics(points[0]):
        sign = -1 if key in LOW else 1
        point = max(points, key=lambda point: sign * point.test[key])
        best[key] = (point.penalty, point.test[key])
    return best


def score_table(title: str, points: Sequence[Point], best: Point) -> Table:
    """Test scores at the chosen penalty, and apart what the test rows would have chosen."""
    ideal = oracle(points)
    rows: list[Row] = [
        [name, best.test[key], ideal[key][1], ideal[key][0]]
        for key, name in shown_metrics(best).items()
    ]
    return Table(
        f"linear probe: {title}",
        [Column("test rows at 0.5"), Column("chosen on validation", ".4f"),
         Column("oracle", ".4f"), Column("its penalty", ".2g")],
        rows,
        f"penalty {best.penalty:.2g} chosen on validation rows; oracle: for each metric the one "
        "that is best on the test rows themselves, optimistic, as some papers report",
    )  # fmt: skip


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {out}: {error.strerror}; choose another --out") from error


def _write(out: Path, values: dict[str, Any], picture: str) -> None:
    try:
        write_text(out / "probe.json", json.dumps(values, indent=1) + "\n")
        write_text(out / "probe.svg", picture)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}; choose another --out") from error


def _parse(argv: Sequence[str]) -> ProbeOptions:
    try:
        return tyro.cli(
            ProbeOptions, prog="python -m train probe", description=DESCRIPTION, args=list(argv)
        )
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            Console().print(EXAMPLE, highlight=False)
        raise
