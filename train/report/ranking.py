"""Methods by their mean rank over data sets, joined where the ranks do not tell them apart."""

from __future__ import annotations

import io

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from train.report.drawing import COLOURS
from train.standings import Standing

LINE_HEIGHT = 0.26
"""Inches."""


def critical_difference_diagram(stands: Standing, title: str) -> str:
    """The figure as a file of SVG: ranks on an axis, names below at both sides, bars that join."""
    names, groups = list(stands.ranks), stands.groups()
    top = 2 + len(groups)
    rows = top + (len(names) + 1) // 2
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "", "font.size": 9.5}):
        figure = Figure(figsize=(8.5, LINE_HEIGHT * (rows + 2)), layout="constrained")
        axes = figure.subplots()
        axes.set(xlim=(-0.4, len(names) + 1.4), ylim=(rows, 0), yticks=[], title=title)
        axes.xaxis.tick_top()
        axes.set_xticks(range(1, len(names) + 1))
        axes.spines[["left", "right", "bottom"]].set_visible(False)
        width = stands.critical_difference
        axes.plot([1, 1 + width], [1, 1], color="black", marker="|", lw=1.2)
        axes.text(1 + width / 2, 0.85, f"critical difference {width:.2f}", ha="center", va="bottom")
        for place, group in enumerate(groups):
            ends = [stands.ranks[group[0]] - 0.04, stands.ranks[group[-1]] + 0.04]
            axes.plot(ends, [1.6 + place] * 2, lw=3, color=COLOURS[0], solid_capstyle="butt")
        for place, name in enumerate(names):
            _label(axes, stands, name, place, top)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _label(axes: Axes, stands: Standing, name: str, place: int, top: int) -> None:
    """A line down from the axis and out to the side: the better half left, the others right."""
    count, rank = len(stands.ranks), stands.ranks[name]
    is_left = place < (count + 1) // 2
    height = top + (place if is_left else count - 1 - place)
    end = -0.3 if is_left else count + 1.3
    axes.plot([rank, rank, end], [0, height, height], color="grey", lw=0.7)
    told = f"{name}  {rank:.2f}" if is_left else f"{rank:.2f}  {name}"
    axes.text(end, height - 0.08, told, ha="left" if is_left else "right", va="bottom")
