"""The part of `docs/results.md` that says which rows of the plan no run has given yet."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from train.filling import missing_rows, read_plan, wanted_rows

PLAN = "plan.toml"
HEAD = """
## Left out

Rows that [the plan](../train/results/plan.toml) names and nobody has trained yet, with the number
of seeds that are missing. `python -m train fill` trains them, and goes on where it was interrupted.
"""


def left_out_section(folder: Path) -> str:
    """A line for each table of the plan that is not complete; nothing without a plan among rows."""
    plan = folder / PLAN
    if not plan.is_file():
        return ""
    tables: dict[str, Counter[str]] = {}
    for row in missing_rows(wanted_rows(read_plan(plan), Path()), folder):
        tables.setdefault(row.table, Counter())[row.run.name] += 1
    lines = ["", "| rows | methods |", "|---|---|"]
    for table, methods in sorted(tables.items()):
        names = ", ".join(f"{method} ({seeds})" for method, seeds in methods.items())
        lines.append(f"| {table} | {names} |")
    return HEAD + "\n".join(lines) + "\n" if tables else f"{HEAD}\nNothing is missing.\n"
