"""What came out of a search: the best preset, a table of all trials, a page with plots."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState
from rich import box
from rich.table import Table

from train.config import config_values, to_toml
from train.run import write_text
from train.search.plan import Search
from train.search.space import chosen
from train.search.study import SharedStudy

STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "given up",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}
SHOWN = 5


def finished(study: SharedStudy) -> list[FrozenTrial]:
    """Trials that were trained to their end, the best first."""
    done = [trial for trial in study.trials() if trial.state == TrialState.COMPLETE]
    return sorted(done, key=lambda trial: (-score(trial), trial.number))


def score(trial: FrozenTrial) -> float:
    """The validation score of a finished trial."""
    assert trial.value is not None  # noqa: S101 - it is finished
    return trial.value


def write_results(search: Search, study: SharedStudy) -> Path | None:
    """Write `trials.csv` and, once a trial is finished, `best.toml`, whose place is returned."""
    write_text(search.folder / "trials.csv", _trials_text(search, study))
    best = next(iter(finished(study)), None)
    if best is None:
        return None
    values = config_values(search.run(chosen(best.params, search.space), search.folder).config)
    path = search.folder / "best.toml"
    head = (
        f"# hyper-parameters of method {search.method!r} on {search.options.dataset}: trial "
        f"{best.number} of {len(study.trials())}, validation score {score(best):.4f}\n"
    )
    write_text(path, head + to_toml(values))
    return path


def _trials_text(search: Search, study: SharedStudy) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", "validation", *search.space, "reason"])
    for trial in study.trials():
        value = trial.value if trial.state == TrialState.COMPLETE else ""
        values = [trial.params.get(name, "") for name in search.space]
        reason = trial.user_attrs.get("reason", "")
        writer.writerow([trial.number, STATES[trial.state], value, *values, reason])
    return text.getvalue()


def best_table(search: Search, study: SharedStudy) -> Table:
    """The best trials, for the terminal."""
    table = Table(box=box.SIMPLE, title="best trials", title_justify="left")
    for name in ("trial", "validation"):
        table.add_column(name, justify="right")
    table.add_column("hyper-parameters", overflow="fold")
    for trial in finished(study)[:SHOWN]:
        told = ", ".join(f"{name} {_short(value)}" for name, value in trial.params.items())
        table.add_row(str(trial.number), f"{score(trial):.4f}", told)
    return table


def importances(study: SharedStudy) -> dict[str, float]:
    """Share of each hyper-parameter in what makes good trials good; empty for too few trials."""
    if len(finished(study)) < SHOWN:
        return {}
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    return optuna.importance.get_param_importances(study.study, evaluator=evaluator)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
