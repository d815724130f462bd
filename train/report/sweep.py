"""Scores against the value of one setting, a line a method."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

from train.report.drawing import COLOURS
from train.sweeps import Sweep

WIDE = 8
"""Times the least value: beyond it steps are seen by their ratio."""


def sweep_curves(sweep: Sweep, scores: Mapping[str, str]) -> str:
    """The figure as a file of SVG, a panel a score (by its title): means, deviations as bars."""
    style: Any = {
        "svg.fonttype": "none", "svg.hashsalt": "", "font.size": 9.5,
        "axes.prop_cycle": cycler(color=COLOURS), "axes.grid": True, "grid.alpha": 0.2,
        "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
    }  # fmt: skip
    values = sweep.values
    with mpl.rc_context(style):
        figure = Figure(figsize=(4.3 * len(scores), 3.1), layout="constrained")
        panels = figure.subplots(1, len(scores), squeeze=False)[0]
        for axes, (score, title) in zip(panels, scores.items(), strict=True):
            for method in sweep.lines:
                means = sweep.means(method, score)
                spread = [mean.deviation or 0.0 for mean in means.values()]
                heights = [mean.value for mean in means.values()]
                axes.errorbar(
                    list(means), heights, spread, marker="o", ms=4, capsize=2, label=method
                )
            axes.set(title=title, xlabel=sweep.setting.replace("_", " "))
            if values[0] > 0 and values[-1] >= WIDE * values[0]:
                axes.set_xscale("log")
                axes.set_xticks(values, [f"{value:g}" for value in values])
                axes.minorticks_off()
        panels[0].legend()
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
