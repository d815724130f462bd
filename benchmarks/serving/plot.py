"""What was measured, as bars: every server beside ours, one panel for each measure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from benchmarks.serving.page import OURS, Value, rate, ratio

if TYPE_CHECKING:
    from benchmarks.serving.__main__ import Results

# Legible on white, and apart from each other for colour-blind eyes too.
COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#999999")
PANELS: Sequence[tuple[str, Value]] = (
    ("Rows a second, ours = 1\n(right of 1: faster than ours)", rate),
    ("p50, ours = 1\n(right of 1: slower than ours)", lambda burst: burst.p50_ms),
    ("p99, ours = 1\n(right of 1: slower than ours)", lambda burst: burst.p99_ms),
)
BAR_INCHES = 0.15
WIDTH_INCHES = 10.0
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "",  # the same ids each time
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
}


def draw(results: Results, cases: Sequence[str], path: Path) -> None:
    """Write the figure as SVG."""
    names = list(dict.fromkeys(name for name, _ in results.bursts if name != OURS))
    tops = _tops(results, names, cases)
    with mpl.rc_context(STYLE):
        height = BAR_INCHES * (max(tops.values()) + 1) + 1.1
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        panels = figure.subplots(1, len(PANELS), sharey=True)
        for axes, (title, value) in zip(panels, PANELS, strict=True):
            _panel(axes, results, tops, names, value)
            axes.set_title(title, loc="left")
        _name_cases(panels[0], tops, cases)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(names), frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _tops(
    results: Results, names: Sequence[str], cases: Sequence[str]
) -> dict[tuple[str, str], int]:
    """Where each bar is, counted from the top: those that were measured, a gap after a case."""
    tops, top = {}, 0
    for case in cases:
        for name in names:
            if ratio(results, name, OURS, case, rate) is not None:
                tops[(name, case)] = top
                top += 1
        top += 1
    return tops


def _panel(
    axes: Axes,
    results: Results,
    tops: dict[tuple[str, str], int],
    names: Sequence[str],
    value: Value,
) -> None:
    for name, colour in zip(names, COLOURS, strict=False):
        places, ratios = [], []
        for (server, case), top in tops.items():
            found = ratio(results, name, OURS, case, value) if server == name else None
            if found is not None:
                places.append(top)
                ratios.append(found)
        # From 1 on: a bar's length is how far a server is from ours, on either side.
        lengths = [one - 1 for one in ratios]
        axes.barh(places, lengths, left=1, height=0.85, color=colour, label=name)
        for place, one in zip(places, ratios, strict=True):
            axes.annotate(
                f"{one:.2f}" if one < 10 else f"{one:.0f}",
                (one, place),
                xytext=(2 if one >= 1 else -2, 0),
                textcoords="offset points",
                ha="left" if one >= 1 else "right",
                va="center",
                fontsize=6,
            )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.xaxis.set_major_locator(LogLocator(10))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axes.minorticks_off()
    axes.grid(axis="x", alpha=0.2)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    for gap in set(range(max(tops.values()))) - set(tops.values()):
        axes.axhline(gap, color="black", linewidth=0.4, alpha=0.2)


def _name_cases(axes: Axes, tops: dict[tuple[str, str], int], cases: Sequence[str]) -> None:
    places = {case: [top for (_, one), top in tops.items() if one == case] for case in cases}
    shown = {case: sum(all_of) / len(all_of) for case, all_of in places.items() if all_of}
    axes.set_yticks(list(shown.values()), [case.replace(", ", ",\n") for case in shown])
    axes.set_ylim(max(tops.values()) + 1, -1)
