"""`python -m benchmarks.capacity`: from the cost of a request on one core to pods for a load.

python -m benchmarks.capacity [--page docs/capacity.md]

Measures a server of one worker, puts its numbers into the model of `queueing`, checks what that
says against a Poisson load that is measured too, and simulates fleets up to a million requests a
second. Takes a minute; the check means something on an idle machine alone, and says so.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.capacity.measuring import Point, costs, fitted, one_worker, poisson
from benchmarks.capacity.page import Findings, Fleet, Share, text
from benchmarks.capacity.queueing import Balancing, Outcome, Worker, simulate, workers_for

LOADS = (1_000, 10_000, 100_000, 1_000_000)
CHECKED = (0.05, 0.1, 0.3)
"""Loads that are measured, as shares of what a worker can do; the sender needs a core too."""
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
BALANCINGS: tuple[Balancing, ...] = ("random", "round robin", "two choices")
REQUESTS_PER_WORKER = 4_000
SHOWN_FLEET = 64
"""Workers of the fleet whose latency is drawn against its load."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How long to measure, and where to write."""

    seconds: float = 2.0
    """Of each load."""
    utilisation: float = 0.5
    """Share of what a worker can do that is planned for."""
    page: Path | None = None
    """Markdown file to write, with a figure beside it; else the text is printed."""


def main(options: Options) -> None:
    """Measure, simulate, write."""
    busy = os.getloadavg()[0]
    with one_worker() as (running, requests):
        worker = fitted(costs(running, requests, options.seconds))
        measured = [
            poisson(running, requests, share * worker.rows_per_second, options.seconds)
            for share in CHECKED
        ]
    findings = find(worker, measured, busy, options.utilisation)
    if options.page is None:
        print(text(findings, ""))
        return
    from benchmarks.capacity.plot import draw  # noqa: PLC0415 - the extra report, for this alone

    figure = options.page.with_suffix(".svg")
    draw(findings, figure)
    options.page.write_text(text(findings, figure.name), encoding="utf-8")


def find(worker: Worker, measured: list[Point], busy: float, utilisation: float) -> Findings:
    """All that the page tells."""
    return Findings(
        worker=worker,
        utilisation=utilisation,
        load_average=busy,
        checks=[(point, simulate(worker, point.load)) for point in measured],
        fleets=[_fleet(worker, load, utilisation) for load in LOADS],
        shares=[
            Share(share, balancing, _at(worker, share, balancing))
            for balancing in BALANCINGS
            for share in SHARES
        ],
    )


def _fleet(worker: Worker, load: float, utilisation: float) -> Fleet:
    """A whole fleet, every worker of it, with each way to balance; it is never scaled down."""
    workers = workers_for(load, worker, utilisation)
    requests = max(workers * REQUESTS_PER_WORKER, 50_000)
    found = {
        balancing: simulate(worker, load, workers=workers, requests=requests, balancing=balancing)
        for balancing in BALANCINGS
    }
    return Fleet(load, workers, found)


def _at(worker: Worker, share: float, balancing: Balancing) -> Outcome:
    load = share * worker.rows_per_second * SHOWN_FLEET
    requests = SHOWN_FLEET * REQUESTS_PER_WORKER
    return simulate(worker, load, workers=SHOWN_FLEET, requests=requests, balancing=balancing)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
