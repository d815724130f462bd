"""Figures of runs, as SVG for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter
from scipy import sparse

from train.data_display import SLICES
from train.display import SHOWN_SET_METRICS
from train.label_map import heat_map
from train.probe import Point
from train.report.calibration import BINS as CALIBRATION_BINS
from train.report.calibration import Reliability
from train.report.drawing import COLOURS, INK, as_svg, page_style
from train.report.gradients import Floats, JointTerm, LabelPairs, random_label_sets
from train.report.labels import Confused
from train.report.representation import Clusters, principal_plane
from train.report.runs import FinishedRun
from train.report.study import Study
from train.thresholds import (
    FIXED_THRESHOLD,
    MPVAE_GRID,
    metrics_by_threshold,
    tuned_threshold,
)

PAIRS_OF_A_KIND = 2
BINS = 12
SHOWN_DRAWS = 800
NAME_LETTERS = 26
MAPPED_LABELS = 8
THRESHOLDED = {
    name: SHOWN_SET_METRICS[name]
    for name in ("example_f1", "micro_f1", "macro_f1", "subset_accuracy")
}


def learning_curves(run: FinishedRun) -> str:
    """Losses and validation score by epoch; where stages begin, and the best epoch."""
    score = monitored(run)
    names = [name for epoch in run.history for name in epoch if name not in
             ("epoch", "stage", "seconds", score)]  # fmt: skip
    with page_style():
        figure = Figure(figsize=(9, 3.1), layout="constrained")
        left, right = figure.subplots(1, 2)
        for name in dict.fromkeys(names):
            points = [(epoch["epoch"], epoch[name]) for epoch in run.history if name in epoch]
            left.plot(*zip(*points, strict=True), label=name.replace("_", " "), marker=_dot(points))
        left.set(xlabel="epoch", title="losses, mean over batches")
        epochs = [epoch["epoch"] for epoch in run.history]
        scores = [epoch[score] for epoch in run.history]
        right.plot(epochs, scores, marker=_dot(epochs))
        best = int(run.metrics["best_epoch"])
        best_score = next((e[score] for e in run.history if e["epoch"] == best), None)
        if best_score is not None:
            right.plot(best, best_score, "o", color=COLOURS[1], label=f"best, epoch {best}")
        right.set(xlabel="epoch", title=_monitor_title(score))
        for axes in (left, right):
            _mark_stages(axes, run.history)
            axes.legend()
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return as_svg(figure)


def label_map(run: FinishedRun, source: str, affinity: Floats) -> str:
    """Related labels side by side, by one of the run's maps."""
    with page_style(), mpl.rc_context({"axes.grid": False}):
        title = f"{run.name}: {source}"
        return as_svg(heat_map(affinity, run.checkpoint.labels, run.train_counts, title=title))


def cluster_curves(clusters: Clusters) -> str:
    """Silhouette and Davies-Bouldin index by the share of label combinations that is kept."""
    series = {"silhouette": clusters.silhouette, "Davies-Bouldin index": clusters.davies_bouldin}
    with page_style():
        figure = Figure(figsize=(9, 2.8), layout="constrained")
        for axes, (title, values) in zip(figure.subplots(1, 2), series.items(), strict=True):
            known = [(s, v) for s, v in zip(clusters.share, values, strict=True) if v is not None]
            axes.plot(*zip(*known, strict=True), marker=_dot(known))
            axes.set(title=title, xlabel="share of the label combinations", xlim=(0, 1.02))
        return as_svg(figure)


def row_map(vectors: Floats, targets: sparse.csr_array, names: Sequence[str]) -> tuple[str, float]:
    """Rows on the plane of their largest variance, by the most frequent labels.

    vectors: (rows, size). targets: (rows, labels). Returns the share of the variance too.
    """
    places, share = principal_plane(vectors)
    counts = np.asarray(targets.sum(axis=0)).ravel()
    shown = np.argsort(-counts, kind="stable")[: min(MAPPED_LABELS, int((counts > 0).sum()))]
    has = targets[:, shown].toarray() > 0
    clear = has.sum(axis=1) == 1
    with page_style(), mpl.rc_context({"axes.grid": False}):
        figure = Figure(figsize=(9, 5.6), layout="constrained")
        axes = figure.subplots()
        dots: Any = {"linestyle": "", "marker": ".", "rasterized": True}
        axes.plot(*places[~clear].T, color=INK, alpha=0.12, markersize=3, **dots)
        for place, (label, colour) in enumerate(zip(shown, COLOURS, strict=False)):
            own = places[clear & has[:, place]].T
            axes.plot(
                *own, color=colour, alpha=0.7, markersize=4, label=_short(names[label]), **dots
            )
        axes.set(xlabel="first principal component", ylabel="second")
        figure.legend(loc="outside right upper", fontsize=9, markerscale=3)
        return as_svg(figure), share


def _dot(points: Sequence[object]) -> str:
    return "." if len(points) < 30 else ""


def _mark_stages(axes: Any, history: Sequence[dict[str, float]]) -> None:  # noqa: ANN401 - untyped
    for before, after in pairwise(history):
        if before.get("stage") != after.get("stage"):
            place = (before["epoch"] + after["epoch"]) / 2
            axes.axvline(place, color=INK, alpha=0.5, linewidth=1, linestyle=":")
            label = f" stage {after['stage'] + 1:.0f}"
            axes.text(place, 0.02, label, transform=axes.get_xaxis_transform(), fontsize=8)


def threshold_curves(run: FinishedRun) -> str:
    """Set metrics by the one threshold of all labels; dots are where validation rows tune them."""
    parts = {
        "validation rows": (run.validation_scores, run.problem.validation.targets),
        "test rows": (run.test_scores, run.true),
    }
    tuned = {name: tuned_threshold(*parts["validation rows"], name) for name in THRESHOLDED}
    with page_style():
        figure = Figure(figsize=(9, 3.1), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (title, (scores, targets)) in zip(panels, parts.items(), strict=True):
            values = metrics_by_threshold(scores, targets, MPVAE_GRID)
            points = metrics_by_threshold(scores, targets, list(tuned.values()))
            for place, (name, label) in enumerate(THRESHOLDED.items()):
                (line,) = axes.plot(MPVAE_GRID, values[name], label=label)
                axes.plot(tuned[name], points[name][place], "o", color=line.get_color())
            axes.axvline(FIXED_THRESHOLD, color=INK, alpha=0.3, linewidth=1)
            axes.set(xlabel="threshold", title=title, xlim=(0, 1), ylim=(0, None))
        lines = panels[0].get_legend_handles_labels()
        figure.legend(*lines, loc="outside right upper", fontsize=9)
        return as_svg(figure)


def reliability_curves(named: Mapping[str, Reliability]) -> str:
    """Share of true cells by score, and how many cells have it; one line a run."""
    edges = np.arange(CALIBRATION_BINS + 1) / CALIBRATION_BINS
    with page_style():
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.plot([0, 1], [0, 1], color=INK, alpha=0.4, linewidth=1, linestyle=":")
        for name, bins in named.items():
            known = bins.cells > 0
            left.plot(bins.mean_scores()[known], bins.true_shares()[known], marker=".", label=name)
            right.stairs(bins.cells, edges, label=name, linewidth=1.5)
        left.set(title="share of true cells", xlabel="mean score of the bin", xlim=(0, 1),
                 ylim=(0, 1))  # fmt: skip
        right.set(title="cells", xlabel="score", yscale="log", xlim=(0, 1))
        right.yaxis.set_major_formatter("{x:,.0f}")
        right.yaxis.set_minor_formatter(NullFormatter())
        if len(named) > 1:
            figure.legend(*left.get_legend_handles_labels(), loc="outside right upper", fontsize=9)
        return as_svg(figure)


def confusion_map(confused: Confused, names: Sequence[str]) -> str:
    """How often the second label is predicted wrongly where the first is missed."""
    labels = [_short(names[label]) for label in confused.labels]
    side = 1.6 + 0.27 * len(labels)
    with page_style(), mpl.rc_context({"axes.grid": False}):
        figure = Figure(figsize=(min(9, side + 1.4), side), layout="constrained")
        axes = figure.subplots()
        picture = axes.imshow(confused.shares(), cmap="Blues", vmin=0)
        for row, column in np.argwhere(confused.rows > 0):
            count = confused.rows[row, column]
            dark = confused.shares()[row, column] > 0.6 * confused.shares().max()
            colour = "white" if dark else "black"  # on the map's own colours, not the page's
            axes.text(column, row, f"{count}", ha="center", va="center", fontsize=7, color=colour)
        axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=8)
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.set(xlabel="predicted wrongly", ylabel="missed")
        figure.colorbar(picture, ax=axes, shrink=0.7, label="share of the label's test rows")
        return as_svg(figure)


def validation_curves(runs: Sequence[FinishedRun]) -> str:
    """Validation scores by epoch and by second, a line a run, in the colour of its method."""
    monitors = list(dict.fromkeys(monitored(run) for run in runs))
    colours = dict(zip(dict.fromkeys(run.kind for run in runs), cycle(COLOURS), strict=False))
    with page_style():
        figure = Figure(figsize=(9, 3.1 * len(monitors)), layout="constrained")
        panels = figure.subplots(len(monitors), 2, sharey="row", squeeze=False)
        for pair, monitor in zip(panels, monitors, strict=True):
            for run in (run for run in runs if monitored(run) == monitor):
                scores = [epoch[monitor] for epoch in run.history]
                # Runs from before epochs were timed go by their mean.
                mean = run.seconds_per_epoch or 0.0
                spent = [epoch.get("seconds", mean) for epoch in run.history]
                for axes, places in zip(pair, (range(1, len(scores) + 1), np.cumsum(spent)),
                                        strict=True):  # fmt: skip
                    axes.plot(places, scores, color=colours[run.kind], alpha=0.8, linewidth=1.2,
                              marker=_dot(scores), label=run.kind)  # fmt: skip
            pair[0].set(xlabel="epoch", title=_monitor_title(monitor))
            pair[1].set(xlabel="seconds of training", title=_monitor_title(monitor))
            pair[0].xaxis.set_major_locator(MaxNLocator(integer=True))
        lines = [axes.get_legend_handles_labels() for axes in panels[:, 0]]
        by_kind = {name: line for shown in lines for line, name in zip(*shown, strict=True)}
        figure.legend(by_kind.values(), by_kind.keys(), loc="outside right upper", fontsize=9)
        return as_svg(figure)


def monitored(run: FinishedRun) -> str:
    """What the epochs of a run were judged by, as its history calls it."""
    return next(name for name in run.history[0] if name.startswith("validation_"))


def _monitor_title(name: str) -> str:
    return name.replace("_f1", "-F1").replace("_", " ")


def slice_bars(runs: Sequence[FinishedRun]) -> str | None:
    """Macro-F1 and mAP of head, torso and tail labels, side by side; None where only one exists."""
    slices = [name for name in SLICES if any(f"macro_f1_{name}" in run.fixed for run in runs)]
    if len(slices) < 2:
        return None
    with page_style():
        height = 0.9 + len(slices) * (0.45 + 0.2 * len(runs))
        figure = Figure(figsize=(9, height), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        thickness = 0.8 / len(runs)
        titles = {"macro_f1": "macro-F1 at 0.5", "map_by_label": "mAP by label"}
        for axes, (key, title) in zip(panels, titles.items(), strict=True):
            for i, run in enumerate(runs):
                values = [run.fixed.get(f"{key}_{name}", np.nan) for name in slices]
                places = np.arange(len(slices)) + (i - (len(runs) - 1) / 2) * thickness
                colour = COLOURS[i % len(COLOURS)]
                axes.barh(places, values, thickness * 0.92, color=colour, label=run.name)
            axes.set(title=title, xlim=(0, None))
            axes.grid(visible=False, axis="y")
        panels[0].set_yticks(
            range(len(slices)), [f"{name}\n{SLICES[name]}" for name in slices], fontsize=9
        )
        panels[0].invert_yaxis()
        if len(runs) > 1:
            panels[1].legend(fontsize=9)
        return as_svg(figure)


def probe_curves(points: Sequence[Point], best: Point) -> str:
    """Scores of a linear probe against its penalty, and the penalty that validation chose."""
    shown = {"example_f1": "example-F1", "macro_f1": "macro-F1", "map_by_label": "mAP by label"}
    penalties = [point.penalty for point in points]
    with page_style():
        figure = Figure(figsize=(9, 3.1), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, part in zip(panels, ("validation", "test"), strict=True):
            for key, name in shown.items():
                axes.plot(penalties, [getattr(point, part)[key] for point in points], label=name)
            axes.axvline(best.penalty, color=INK, alpha=0.6, linestyle=":")
            axes.set(xscale="log", xlabel="penalty", title=f"{part} rows, threshold 0.5")
        panels[0].legend(fontsize=9)
        return as_svg(figure)


def gradient_maps(term: JointTerm, pairs: LabelPairs, names: Sequence[str]) -> str:
    """The gradient at y_k over (y_i, y_k) and against y_i, for the best supported pairs of a kind.

    Pairs are chosen by their rows alone, never by what their gradients look like.
    """
    shown = [("implied", pair) for pair in pairs.implied[:PAIRS_OF_A_KIND]]
    shown += [("unrelated", pair) for pair in pairs.unrelated[:PAIRS_OF_A_KIND]]
    y = random_label_sets(len(term.matrix))
    with page_style(), mpl.rc_context({"axes.grid": False}):
        figure = Figure(figsize=(2.75 * len(shown), 5.4), layout="constrained")
        panels = figure.subplots(2, len(shown), squeeze=False)
        for column, (kind, pair) in enumerate(shown):
            i, k = pairs.labels[pair]
            gradient = term.gradient(y, int(k))
            top, bottom = panels[:, column]
            mean = _mean_by_place(gradient, y[:, k], y[:, i])  # rows of the picture are y_k
            picture = top.imshow(mean, origin="lower", extent=(0, 1, 0, 1), cmap="viridis")
            figure.colorbar(picture, ax=top, shrink=0.75).ax.tick_params(labelsize=8)
            top.set_title(f"{kind}\ni: {_short(names[i])}\nk: {_short(names[k])}", fontsize=9)
            top.set(xlabel="y_i", ylabel="y_k")
            dots, centres = y[:SHOWN_DRAWS, i], (np.arange(BINS) + 0.5) / BINS
            bottom.plot(dots, gradient[:SHOWN_DRAWS], ".", markersize=2, alpha=0.4, rasterized=True)
            bottom.plot(centres, _mean_by_place(gradient, y[:, i]), linewidth=2)
            bottom.set(xlabel="y_i")
        panels[1, 0].set_ylabel("gradient at y_k")
        return as_svg(figure)


def _short(name: str) -> str:
    return name if len(name) <= NAME_LETTERS else f"{name[: NAME_LETTERS - 1]}…"


def _mean_by_place(values: np.ndarray, *coordinates: np.ndarray) -> np.ndarray:
    """Mean value in each of BINS equal parts of [0, 1] along every coordinate."""
    places = [np.minimum((x * BINS).astype(np.int64), BINS - 1) for x in coordinates]
    shape = (BINS,) * len(coordinates)
    cell = np.ravel_multi_index(places, shape)
    sums, sizes = (np.bincount(cell, w, BINS ** len(shape)) for w in (values, None))
    return np.asarray((sums / np.maximum(sizes, 1)).reshape(shape))


def study_curves(study: Study) -> str:
    """Score and cost of every run, with their means, against the setting that differs."""
    values = np.array([value for value, _ in study.runs])
    series = {
        "example-F1 of test rows": {
            "at 0.5": [run.fixed["example_f1"] for _, run in study.runs],
            "tuned": [run.metrics["scores"]["tuned"]["example_f1"] for _, run in study.runs],
        },
        "seconds of training": {"": [run.metrics["seconds"] for _, run in study.runs]},
    }
    places = np.unique(values)
    is_wide = places[0] > 0 and places[-1] >= 8 * places[0]
    with page_style():
        figure = Figure(figsize=(9, 3.1), layout="constrained")
        for axes, (title, lines) in zip(figure.subplots(1, 2), series.items(), strict=True):
            for (label, found), colour in zip(lines.items(), COLOURS, strict=False):
                means = [np.mean(np.array(found)[values == place]) for place in places]
                axes.plot(values, found, "o", color=colour, markersize=4, alpha=0.6)
                axes.plot(places, means, color=colour, label=label)
            axes.set(title=title, xlabel=study.setting.replace("_", " "))
            if is_wide:
                axes.set_xscale("log")
                axes.set_xticks(places, [f"{place:g}" for place in places])
                axes.minorticks_off()
            if "" not in lines:
                axes.legend()
        return as_svg(figure)
