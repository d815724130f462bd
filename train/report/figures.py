"""Figures as SVG that stands inside the page: text and axes take the page's own colour."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy import sparse

from train.data_display import SLICES
from train.label_map import heat_map
from train.probe import Point
from train.report.gradients import Floats, JointTerm, LabelPairs, random_label_sets
from train.report.representation import Clusters, principal_plane
from train.report.runs import FinishedRun
from train.report.study import Study
from train.thresholds import FIXED_THRESHOLD, MPVAE_GRID, metrics_by_threshold

# Legible on white and on near-black alike.
COLOURS = ("#3b82c4", "#e07b39", "#2f9e6e", "#c2508f", "#8a6fd1", "#b8952b", "#3aa6b0", "#d1574e",
           "#7c8a3a", "#8a8f98")  # fmt: skip
INK = "#010203"
"""Stands for the page's text colour until the figure is written."""
PAIRS_OF_A_KIND = 2
BINS = 12
SHOWN_DRAWS = 800
NAME_LETTERS = 26
MAPPED_LABELS = 8


def _style() -> AbstractContextManager[None]:
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color",
             "grid.color")  # fmt: skip
    values: Any = {
        "svg.fonttype": "none",  # text stays text
        "text.parse_math": False,  # names of labels may hold any letters
        "svg.hashsalt": "",  # the same ids each time
        "font.size": 10,
        "axes.titlesize": 10.5,
        "axes.prop_cycle": cycler(color=COLOURS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.facecolor": "none",
        "grid.alpha": 0.15,
        "legend.frameon": False,
        "savefig.facecolor": "none",
        **dict.fromkeys(inked, INK),
    }
    return mpl.rc_context(values)


def _svg(figure: Figure) -> str:
    """The `<svg>` element alone, as wide as the page lets it."""
    text = io.StringIO()
    with warnings.catch_warnings():
        # Letters that matplotlib has no shape for are drawn by the browser, which has.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(text, format="svg", metadata={"Date": None}, dpi=144)
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    # No id may occur twice on a page: those that nobody refers to go, the others name their figure.
    svg = re.sub(r'(<g|<image [^>]*) id="[^"]*"', r"\1", svg)
    own = hashlib.blake2b(svg.encode(), digest_size=4).hexdigest()
    svg = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>f{own}-", svg)
    # Sizes stay, families are those of the page.
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    width, opening = figure.get_figwidth() * 96, svg[: svg.index(">")]
    sized = re.sub(r' (width|height)="[^"]*"', "", opening) + f' style="max-width: {width:.0f}px"'
    return sized.replace(INK, "currentColor") + svg[len(opening) :].replace(INK, "currentColor")


def learning_curves(run: FinishedRun) -> str:
    """Losses and validation score by epoch; where stages begin, and the best epoch."""
    score = next(name for name in run.history[0] if name.startswith("validation_"))
    names = [name for epoch in run.history for name in epoch if name not in
             ("epoch", "stage", "seconds", score)]  # fmt: skip
    with _style():
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
        right.set(xlabel="epoch", title=score.replace("_", " "))
        for axes in (left, right):
            _mark_stages(axes, run.history)
            axes.legend()
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return _svg(figure)


def label_map(run: FinishedRun, source: str, affinity: Floats) -> str:
    """Related labels side by side, by one of the run's maps."""
    with _style(), mpl.rc_context({"axes.grid": False}):
        title = f"{run.name}: {source}"
        return _svg(heat_map(affinity, run.checkpoint.labels, run.train_counts, title=title))


def cluster_curves(clusters: Clusters) -> str:
    """Silhouette and Davies-Bouldin index by the share of label combinations that is kept."""
    series = {"silhouette": clusters.silhouette, "Davies-Bouldin index": clusters.davies_bouldin}
    with _style():
        figure = Figure(figsize=(9, 2.8), layout="constrained")
        for axes, (title, values) in zip(figure.subplots(1, 2), series.items(), strict=True):
            known = [(s, v) for s, v in zip(clusters.share, values, strict=True) if v is not None]
            axes.plot(*zip(*known, strict=True), marker=_dot(known))
            axes.set(title=title, xlabel="share of the label combinations", xlim=(0, 1.02))
        return _svg(figure)


def row_map(vectors: Floats, targets: sparse.csr_array, names: Sequence[str]) -> tuple[str, float]:
    """Rows on the plane of their largest variance, by the most frequent labels.

    vectors: (rows, size). targets: (rows, labels). Returns the share of the variance too.
    """
    places, share = principal_plane(vectors)
    counts = np.asarray(targets.sum(axis=0)).ravel()
    shown = np.argsort(-counts, kind="stable")[: min(MAPPED_LABELS, int((counts > 0).sum()))]
    has = targets[:, shown].toarray() > 0
    clear = has.sum(axis=1) == 1
    with _style(), mpl.rc_context({"axes.grid": False}):
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
        return _svg(figure), share


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
    """Set metrics of validation and test rows by the one threshold of all labels."""
    parts = {
        "validation rows": (run.validation_scores, run.problem.validation.targets),
        "test rows": (run.test_scores, run.true),
    }
    with _style():
        figure = Figure(figsize=(9, 3.1), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (name, (scores, targets)) in zip(panels, parts.items(), strict=True):
            values = metrics_by_threshold(scores, targets, MPVAE_GRID)
            for key in ("example_f1", "micro_f1", "macro_f1", "subset_accuracy"):
                axes.plot(MPVAE_GRID, values[key], label=key.replace("_", "-").replace("f1", "F1"))
            axes.axvline(FIXED_THRESHOLD, color=INK, alpha=0.3, linewidth=1)
            axes.axvline(run.checkpoint.thresholds["tuned"], color=INK, alpha=0.6, linestyle=":")
            axes.set(xlabel="threshold", title=name, xlim=(0, 1), ylim=(0, None))
        panels[0].legend(fontsize=9)
        return _svg(figure)


def slice_bars(runs: Sequence[FinishedRun]) -> str | None:
    """Macro-F1 and mAP of head, torso and tail labels, side by side; None where only one exists."""
    slices = [name for name in SLICES if any(f"macro_f1_{name}" in run.fixed for run in runs)]
    if len(slices) < 2:
        return None
    with _style():
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
        return _svg(figure)


def probe_curves(points: Sequence[Point], best: Point) -> str:
    """Scores of a linear probe against its penalty, and the penalty that validation chose."""
    shown = {"example_f1": "example-F1", "macro_f1": "macro-F1", "map_by_label": "mAP by label"}
    penalties = [point.penalty for point in points]
    with _style():
        figure = Figure(figsize=(9, 3.1), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, part in zip(panels, ("validation", "test"), strict=True):
            for key, name in shown.items():
                axes.plot(penalties, [getattr(point, part)[key] for point in points], label=name)
            axes.axvline(best.penalty, color=INK, alpha=0.6, linestyle=":")
            axes.set(xscale="log", xlabel="penalty", title=f"{part} rows, threshold 0.5")
        panels[0].legend(fontsize=9)
        return _svg(figure)


def gradient_maps(term: JointTerm, pairs: LabelPairs, names: Sequence[str]) -> str:
    """The gradient at y_k over (y_i, y_k) and against y_i, for the best supported pairs of a kind.

    Pairs are chosen by their rows alone, never by what their gradients look like.
    """
    shown = [("implied", pair) for pair in pairs.implied[:PAIRS_OF_A_KIND]]
    shown += [("unrelated", pair) for pair in pairs.unrelated[:PAIRS_OF_A_KIND]]
    y = random_label_sets(len(term.matrix))
    with _style(), mpl.rc_context({"axes.grid": False}):
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
        return _svg(figure)


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
    with _style():
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
        return _svg(figure)
