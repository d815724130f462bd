"""What was measured, as the page docs/performance.md."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.serving.__main__ import Results
    from benchmarks.serving.running import Burst

OURS, TRITON, NOOP = "ours, protocol", "Triton, Python backend", "no-op ASGI, 1 process"
ALONE = "ours, no batching"
Value = Callable[["Burst"], float]


def rate(burst: Burst) -> float:
    return burst.requests_per_second


def cpu(burst: Burst) -> float:
    return burst.cpu_us


# (what, server above, server below, case, value of a burst, floor, goal)
AIMS: Sequence[tuple[str, str, str, str, Value, str, str]] = (
    ("1-row JSON vs Triton, 16 connections", OURS, TRITON, "1 row JSON, 16 connections", rate, "1.8", "3"),
    ("1-row JSON vs Triton, 64 connections", OURS, TRITON, "1 row JSON, 64 connections", rate, "2.0", "4"),
    ("p99 at 64 connections vs Triton", OURS, TRITON, "1 row JSON, 64 connections", lambda b: b.p99_ms, "0.6", "0.4"),
    ("p50 at 1 connection vs Triton", OURS, TRITON, "1 row JSON, 1 connection", lambda b: b.p50_ms, "0.6", "0.45"),
    ("p50 at 1 connection vs batching off", OURS, ALONE, "1 row JSON, 1 connection", lambda b: b.p50_ms, "1.05", "1"),
    ("32-row JSON vs Triton, 16 connections", OURS, TRITON, "32 rows JSON, 16 connections", rate, "2.0", "2.5"),
    ("1-row binary vs Triton, 64 connections", OURS, TRITON, "1 row binary, 64 connections", rate, "1.8", "3.4"),
    ("CPU of a bare ASGI no-op over ours, 1-row JSON, 64 connections", NOOP, OURS, "1 row JSON, 64 connections", cpu, "0.30", "0.54"),
)  # fmt: skip


def write_page(
    results: Results, cases: Sequence[str], workers: int, figure: str | None = None
) -> str:
    """The page: aims, all servers, floors, and how to read it; `figure` is a file beside it."""
    drawn = "" if figure is None else f"![Every server beside ours, by case]({figure})\n\n"
    names = list(dict.fromkeys(name for name, _ in results.bursts))
    missing = "".join(
        f"\nLeft out: {name} ({why.splitlines()[0]})." for name, why in results.missing.items()
    )
    return f"""# Serving performance

Written by `python -m benchmarks.serving --page docs/performance.md`: one network (500-400-400-983, top 5) in every server, {workers} workers or instances each, load from `wrk`
on the same machine ({os.cpu_count()} cores, {platform.machine()}), 16 different requests, every answer checked before its server is loaded. Servers run side by side and are loaded in turn; LitServe is stopped meanwhile, as it keeps a core busy while nobody asks it. A ratio is
the median over rounds of the ratio within a round. Other work on the machine moves the rates and p99, less the ratios, least the CPU time a request; its load average before this run was {results.load_average:.1f}.
Peers have the settings of their documentation (batching on, as many workers); ours has its defaults. Triton runs ONNX Runtime in its Python backend, as its own ONNX backend is in no package.{missing}

## Aims

| measure | ours | floor | goal |
|---|--:|--:|--:|
{_aims(results)}

## All servers

{drawn}Requests a second as multiples of ours; in brackets the p99 in milliseconds.

| server | {" | ".join(cases)} |
|---|{"--:|" * len(cases)}
{_table(results, names, cases)}

| server | CPU a request, 1 row JSON at 64 connections, µs | 32 rows JSON at 16 connections, µs | p50 at 1 connection, ms | memory, MB |
|---|--:|--:|--:|--:|
{_costs(results, names)}

Memory is the proportional set size of all processes{_resident(results)}.{_cold(results)} ONNX Runtime alone, one thread: {_raw(results)}.

Requests a second of ours: {_rates(results, cases)}.
"""


def ratio(results: Results, above: str, below: str, case: str, value: Value) -> float | None:
    """Median over rounds of what one server has as a multiple of another; None: not measured."""
    pairs = zip(
        results.bursts.get((above, case), []), results.bursts.get((below, case), []), strict=False
    )
    ratios = [value(a) / value(b) for a, b in pairs if value(b)]
    return statistics.median(ratios) if ratios else None


def _aims(results: Results) -> str:
    lines = []
    for what, above, below, case, value, floor, goal in AIMS:
        found = ratio(results, above, below, case, value)
        lines.append(f"| {what} | {_number(found)} | {floor} | {goal} |")
    return "\n".join(lines)


def _table(results: Results, names: Sequence[str], cases: Sequence[str]) -> str:
    lines = []
    for name in names:
        cells = []
        for case in cases:
            found = ratio(results, name, OURS, case, rate)
            p99 = _median(results, name, case, lambda b: b.p99_ms)
            cells.append("" if found is None else f"{_number(found)} ({_number(p99)})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _costs(results: Results, names: Sequence[str]) -> str:
    lines = []
    for name in names:
        cells = [
            _median(results, name, "1 row JSON, 64 connections", cpu),
            _median(results, name, "32 rows JSON, 16 connections", cpu),
            _median(results, name, "1 row JSON, 1 connection", lambda b: b.p50_ms),
            results.memory_mb.get(name),
        ]
        lines.append(f"| {name} | {' | '.join(map(_number, cells))} |")
    return "\n".join(lines)


def _median(results: Results, name: str, case: str, value: Value) -> float | None:
    bursts = results.bursts.get((name, case))
    return statistics.median(map(value, bursts)) if bursts else None


def _resident(results: Results) -> str:
    megabytes = results.resident_mb.get(OURS)
    return "" if megabytes is None else f"; a worker of ours has {megabytes:.0f} MB resident"


def _cold(results: Results) -> str:
    seconds = results.cold_seconds
    if not seconds:
        return ""
    return (
        f" From its command to readiness ours takes {statistics.median(seconds):.1f} s, "
        f"the median of {len(seconds)} starts."
    )


def _raw(results: Results) -> str:
    return ", ".join(
        f"{us:,.0f} µs for {rows} row{'s' * (rows > 1)}" for rows, us in results.raw_us.items()
    )


def _rates(results: Results, cases: Sequence[str]) -> str:
    rates = {case: _median(results, OURS, case, rate) for case in cases}
    return "; ".join(f"{case}: {value:,.0f}" for case, value in rates.items() if value)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
