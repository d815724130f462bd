"""The page of a search: history and importance as plots, every trial in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter
from optuna.trial import FrozenTrial, TrialState

from train.report.drawing import COLOURS, as_svg, page_style
from train.report.page import render
from train.report.sections import Section, Text, picture
from train.report.tables import Column, Row, Table
from train.search.plan import Search
from train.search.results import STATES, finished, importances, score
from train.search.space import Range, Space
from train.search.study import SharedStudy

PANELS = 3
"""Side by side."""


def search_page(search: Search, study: SharedStudy, command: str) -> str:
    """The whole page as HTML that needs nothing else."""
    section = Section(f"Search of {search.method} on {search.options.dataset}", "search")
    section.add(Text(command, is_code=True))
    done = finished(study)
    if done:
        section.add(picture(history_plot(done), "validation scores; line: the best so far"))
        section.add(picture(value_plots(done, search.space), "validation score by value"))
    shares = importances(study)
    if shares:
        caption = "importance (PED-ANOVA): what tells the better trials from all of them"
        section.add(picture(importance_plot(shares), caption))
    section.add(trial_table(search, study))
    return render([section], section.title)


def history_plot(done: Sequence[FrozenTrial]) -> str:
    """Score by trial."""
    trials = sorted(done, key=lambda trial: trial.number)
    numbers, scores = [trial.number for trial in trials], [score(trial) for trial in trials]
    with page_style():
        figure = Figure(figsize=(9, 3.1), layout="constrained")
        axes = figure.subplots()
        axes.plot(numbers, scores, "o", markersize=4)
        axes.plot(numbers, np.maximum.accumulate(scores), drawstyle="steps-post")
        axes.set(xlabel="trial", title="validation score")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return as_svg(figure)


def value_plots(done: Sequence[FrozenTrial], space: Space) -> str:
    """Score by the value of each hyper-parameter."""
    rows = -(-len(space) // PANELS)
    with page_style():
        figure = Figure(figsize=(9, 2.4 * rows), layout="constrained")
        panels = figure.subplots(rows, PANELS, sharey=True, squeeze=False).ravel()
        for axes, (name, values) in zip(panels, space.items(), strict=False):
            _draw_values(axes, done, name, values)
        for axes in panels[len(space) :]:
            axes.set_visible(False)
        return as_svg(figure)


def _draw_values(axes: Any, done: Sequence[FrozenTrial], name: str, values: object) -> None:  # noqa: ANN401 - untyped
    known = [trial for trial in done if name in trial.params]
    scores = [score(trial) for trial in known]
    if isinstance(values, Range):
        axes.plot([trial.params[name] for trial in known], scores, "o", markersize=3, alpha=0.7)
        if values.log:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(values.low, values.high)
    else:
        words = list(dict.fromkeys(str(values).split(" | ")))
        places = [words.index(str(trial.params[name])) for trial in known]
        axes.plot(places, scores, "o", markersize=3, alpha=0.7)
        axes.set_xticks(range(len(words)), words, fontsize=8)
    axes.set_title(name.replace("_", " "))


def importance_plot(shares: Mapping[str, float]) -> str:
    """A bar a hyper-parameter, the greatest on top."""
    names = list(shares)
    with page_style():
        figure = Figure(figsize=(9, 0.8 + 0.3 * len(names)), layout="constrained")
        axes = figure.subplots()
        axes.barh(range(len(names)), [shares[name] for name in names], color=COLOURS[0])
        axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set(title="importance")
        return as_svg(figure)


def trial_table(search: Search, study: SharedStudy) -> Table:
    """Every trial, the best first, then those that were not finished."""
    done = finished(study)
    others = [trial for trial in study.trials() if trial.state != TrialState.COMPLETE]
    rows: list[Row] = [
        [trial.number, STATES[trial.state], score(trial) if trial in done else None,
         *(trial.params.get(name) for name in search.space)]
        for trial in [*done, *others]
    ]  # fmt: skip
    forms = {
        name: "g" if isinstance(values, Range) else "" for name, values in search.space.items()
    }
    return Table(
        f"trials ({len(rows)})",
        [Column("trial", "d"), Column("state"), Column("validation", ".4f"),
         *(Column(name, form and ".3g") for name, form in forms.items())],
        rows,
        "validation: score of the best epoch on validation rows; test rows are never looked at",
    )  # fmt: skip
