"""Latency against load, and pods against load."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.capacity.page import Findings
from benchmarks.serving.plot import COLOURS

STYLE = {"svg.fonttype": "none", "svg.hashsalt": "", "font.family": "sans-serif", "font.size": 8}


def draw(found: Findings, path: Path) -> None:
    """Write the figure."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        names = dict.fromkeys(one.balancing for one in found.shares)
        for name, colour in zip(names, COLOURS[::2], strict=False):
            members = [one for one in found.shares if one.balancing == name]
            loads = [one.share for one in members]
            for share, line in ((0.99, "-"), (0.5, ":")):
                values = [one.outcome.quantile(share) * 1e3 for one in members]
                label = name if share == 0.99 else None
                left.plot(loads, values, line, color=colour, label=label)
        if found.was_idle:
            for point, _ in found.checks:
                share = point.load / found.worker.rows_per_second
                left.plot([share] * 2, [point.p50 * 1e3, point.p99 * 1e3], "k+", label=None)
        left.set(xlabel="load, as a share of C", ylabel="ms; solid p99, dotted p50", yscale="log")
        left.legend(frameon=False, title="balancing")
        loads = [fleet.load for fleet in found.fleets]
        pods = [fleet.workers for fleet in found.fleets]
        right.plot(loads, pods, "o-", color=COLOURS[0])
        for load, count in zip(loads, pods, strict=True):
            right.annotate(f"{count:,}", (load, count), (-4, 6), textcoords="offset points")
        right.set(
            xlabel="requests a second", ylabel=f"pods of one core, u = {found.utilisation:g}",
            xscale="log", yscale="log",
        )  # fmt: skip
        figure.savefig(path, metadata={"Date": None})
