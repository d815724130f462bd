"""What was found, as a page."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.capacity.measuring import Point
from benchmarks.capacity.queueing import Outcome, Worker

PERFORMANCE = Path(__file__).parents[2] / "docs" / "performance.md"
CLOSED_ROWS = 32
"""Connections to each of two workers in the closed loop of performance.md, so rows of a batch."""
TOO_BUSY = 2.0
"""An all but idle server this many times slower than its own CPU time waits for cores."""


@dataclass(frozen=True)
class Fleet:
    """What a load needs and meets, by the way to balance."""

    load: float
    workers: int
    outcomes: dict[str, Outcome]


@dataclass(frozen=True)
class Share:
    """A fleet at a share of what its workers can do."""

    share: float
    balancing: str
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything that was measured and simulated."""

    worker: Worker
    utilisation: float
    load_average: float
    checks: Sequence[tuple[Point, Outcome]]
    fleets: Sequence[Fleet]
    shares: Sequence[Share]

    @property
    def lone_seconds(self) -> float:
        """Of a request that meets nobody."""
        return self.worker.per_batch + self.worker.per_row

    @property
    def was_idle(self) -> bool:
        """Whether measured latencies say anything about the server."""
        return self.checks[0][0].p50 < TOO_BUSY * self.lone_seconds


def text(found: Findings, figure: str) -> str:
    """The page; `figure` is the name of a picture beside it."""
    worker, u = found.worker, found.utilisation
    rate, full = worker.rows_per_second, worker.max_batch_rows
    picture = f"![Latency by load, and pods by load]({figure})\n\n" if figure else ""
    return f"""\
# Capacity

Written by `python -m benchmarks.capacity --page docs/capacity.md`: what a request costs on one core of this machine ({os.cpu_count()} cores, {platform.machine()}), and what follows for a fleet. Requests have one row of 500
numbers as JSON, the model is that of [performance.md](performance.md) (500-400-400-983). Another model has another a and b: put yours into the formula.

## The formula

A worker (a process on one core; a pod of [k8s](../k8s/README.md) has one) takes what waits, {full} rows at most, and is busy for `a + b rows` seconds, so it does at most `C = {full} / (a + {full} b)` rows a second. A load of L rows a second at a share u of that needs

    pods = ceil(L / (u C))

| | seconds | measured as |
|---|--:|---|
| a, for each batch | {worker.per_batch * 1e6:.0f} µs | CPU time of the server by the mean size of its batches, at 1 to 64 connections; least squares |
| b, for each row | {worker.per_row * 1e6:.0f} µs | HTTP, JSON and model |
| C | {rate:,.0f} rows/s a core | full batches |

CPU time and not the clock, as other programs on the machine change it least; C still moved by a tenth between runs of this command on a busy machine. Batches grow with the load, so the CPU is busier than u: at u = {u:g} it is {_at(found, u).busy:.0%} of a core, with {_at(found, u).rows_per_batch:.1f} rows in a batch.
An autoscaler sees short batches as work: the 70 % of k8s/base are u = {_share_at(found, 0.7):.2f} here, {u / _share_at(found, 0.7):.1f} times the pods of this page, for which latencies are shorter.

## Pods for a load

Simulated with every worker of the fleet, Poisson arrivals, u = {u:g}, queues bounded as by `python -m serve` ({worker.most_waiting:,} rows wait at most, then 429). Milliseconds inside the server: p50 / p99.

| requests a second | pods | random | round robin | two choices | refused |
|--:|--:|--:|--:|--:|--:|
{_fleets(found)}

{picture}## What the balancer does

- *random*, such as connections over processes of one machine, or a proxy without a rule: a Poisson load cut at random is Poisson again, so a worker of a thousand sees what one alone sees at its share. Latency does not depend on the size of the fleet.
- *round robin*: arrivals at a worker become regular; nearly all waiting that is left is for the batch before.
- *two choices*: of two workers drawn at random the one with fewer requests (`least_request` of Envoy, `random two least_conn` of nginx). No worker is behind for long.
- Long-lived connections are balanced once, when they are opened: a few busy clients behave worse than *random*. Let proxies balance requests.

p99 in milliseconds of a fleet of 64, and the share of requests refused at random balancing:

| share u of C | CPU | rows in a batch | random | round robin | two choices | refused |
|--:|--:|--:|--:|--:|--:|--:|
{_shares(found)}

## Checked

The simulation agrees with the known formula of a queue without batches (M/D/1); see `tests/serve/test_capacity.py`. Against a server:

{_closed(found)}

{_open(found)}

Not in the model: pods that start or die, slow clients, requests of many sizes (count rows, not requests), garbage collection, the network, and the cost of refusing.
"""


def _at(found: Findings, share: float) -> Outcome:
    nearest = min(found.shares, key=lambda one: (one.balancing != "random", abs(one.share - share)))
    return nearest.outcome


def _share_at(found: Findings, busy: float) -> float:
    """The share of what a worker can do at which its core is so busy."""
    plain = [one for one in found.shares if one.balancing == "random"]
    return float(np.interp(busy, [one.outcome.busy for one in plain], [one.share for one in plain]))


def _fleets(found: Findings) -> str:
    lines = []
    for fleet in found.fleets:
        cells = [_both(outcome) for outcome in fleet.outcomes.values()]
        refused = max(outcome.refused for outcome in fleet.outcomes.values())
        lines.append(
            f"| {fleet.load:,.0f} | {fleet.workers:,} | {' | '.join(cells)} | {refused:.2%} |"
        )
    return "\n".join(lines)


def _shares(found: Findings) -> str:
    lines = []
    for share in dict.fromkeys(one.share for one in found.shares):
        by = {one.balancing: one.outcome for one in found.shares if one.share == share}
        plain = by["random"]
        cells = " | ".join(f"{outcome.quantile(0.99) * 1e3:.2f}" for outcome in by.values())
        lines.append(
            f"| {share:g} | {plain.busy:.0%} | {plain.rows_per_batch:.1f} | {cells} "
            f"| {plain.refused:.2%} |"
        )
    return "\n".join(lines)


def _closed(found: Findings) -> str:
    """Beside what another program measured, at another time, when the machine was idle."""
    page = PERFORMANCE.read_text("utf-8")
    alone = _number(r"1 row JSON, 1 connection: ([\d,]+);", page)
    quiet = _number(r"load average before this run was ([\d.]+\d)", page)
    cpu = _number(r"\| ours, protocol \| ([\d.]+) \|", page)
    full = (found.worker.per_batch / CLOSED_ROWS + found.worker.per_row) * 1e6
    return f"""\
| measured by `python -m benchmarks.serving` at a load average of {quiet:g} | measured | predicted |
|---|--:|--:|
| requests a second, one connection | {alone:,.0f} | {1 / found.lone_seconds:,.0f} |
| CPU a request at 64 connections to two workers, µs | {cpu:g} | {full:.1f} |"""


def _number(pattern: str, page: str) -> float:
    match = re.search(pattern, page)
    if match is None:
        raise SystemExit(f"{PERFORMANCE} has nothing like {pattern}")
    return float(match[1].replace(",", ""))


def _open(found: Findings) -> str:
    rows = [
        f"| {point.load:,.0f} | {point.p50 * 1e3:.2f} / {point.p99 * 1e3:.2f} | {_both(outcome)} |"
        for point, outcome in found.checks
    ]
    verdict = "The measured values hold the way through the kernel and the sender too."
    if not found.was_idle:
        verdict = (
            "**These measured values check nothing:** even all but idle, the server was slower than "
            "its own CPU time by more than twice, so it waited for cores that other programs had. "
            "Run the command on an idle machine."
        )
    return "\n".join(
        [
            "A Poisson load on one worker, sent by the other core; load average of the machine "
            f"before: {found.load_average:.1f}. Milliseconds, p50 / p99:",
            "",
            "| requests a second | measured | predicted |",
            "|--:|--:|--:|",
            *rows,
            "",
            verdict,
        ]
    )


def _both(outcome: Outcome) -> str:
    return f"{outcome.quantile(0.5) * 1e3:.2f} / {outcome.quantile(0.99) * 1e3:.2f}"
