"""Train rows of the results again, by the commands that stand in them, and compare every number.

    python -m benchmarks.again [--rows 5] [--longest 60] [--seed 0] [--datasets cal500,yeast]

Rows are drawn at random among those that took at most `--longest` seconds. Numbers are the same to
the last digit on the same kind of processor with the same torch; on another one rounding differs,
and a training can end elsewhere. Exits with 1 if any number differs; `python -m train results
runs/again` then replaces the rows by the new ones.
"""

from __future__ import annotations

import random
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from train.errors import ConfigError, run_command
from train.evidence import DIGITS, Record, all_results, read_metrics, record_of

RESULTS = Path(__file__).parents[1] / "train" / "results"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which rows."""

    rows: int = 5
    longest: float = 60
    """Seconds that a row may have taken."""
    seed: int = 0
    """Which rows are drawn."""
    datasets: str = ""
    """Only of these data sets, separated by commas."""
    out: Path = Path("runs/again")


def drawn(options: Options) -> list[Record]:
    """The rows to train again."""
    chosen = options.datasets.split(",") if options.datasets else None
    rows = [
        record
        for dataset, records in all_results(RESULTS).items()
        if chosen is None or dataset in chosen
        for record in records
        if record.seconds <= options.longest
    ]
    if not rows:
        raise ConfigError("no row is so short: raise --longest, or name other --datasets")
    return random.Random(options.seed).sample(rows, min(options.rows, len(rows)))  # noqa: S311


def trained_again(record: Record, folder: Path) -> Record:
    """The same command, into a folder of ours."""
    words = shlex.split(record.command)[1:]  # without `python`
    words += ["--out", str(folder), "--overwrite", "--no-progress", "--no-report"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{record.command}\n{done.stderr}")
    return record_of(read_metrics(folder))


def differences(record: Record, again: Record) -> dict[str, float]:
    """By score: the largest differences first; nothing where all digits that are kept agree."""
    found = {score: again.scores[score] - value for score, value in record.scores.items()}
    found = {s: round(d, DIGITS) for s, d in found.items() if abs(d) > 0.51 * 10**-DIGITS}
    return dict(sorted(found.items(), key=lambda item: -abs(item[1])))


def main(argv: list[str] | None = None) -> int:
    options = tyro.cli(Options, args=argv)
    table = Table("row", "commit", "numbers", "largest difference")
    n_different = 0
    for place, record in enumerate(track(drawn(options), "training")):
        again = trained_again(record, options.out / str(place))
        found = differences(record, again)
        n_different += bool(found)
        worst = next((f"{score} {gap:+.6f}" for score, gap in found.items()), "none")
        name = f"{record.dataset} {record.split} {record.name}, seed {record.seed}"
        table.add_row(name, record.commit[:7], str(len(record.scores)), worst)
    Console().print(table)
    return 1 if n_different else 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
