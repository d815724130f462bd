"""Runs that differ in one number alone, such as samples or the share of rows trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from train.evidence import Mean, Record, mean_score, preset_values

LEAST_VALUES = 3
"""Fewer are no curve."""
FRACTION = "fraction"


@dataclass(frozen=True)
class Sweep:
    """Methods on the rows of one split, by the value of one setting."""

    dataset: str
    split: str
    split_seed: int
    setting: str
    """Name of a hyper-parameter, or `FRACTION`."""
    lines: dict[str, dict[float, list[Record]]]
    """By method, then by value, ascending."""

    @property
    def values(self) -> list[float]:
        """All that any of the methods has."""
        return sorted({value for line in self.lines.values() for value in line})

    def means(self, method: str, score: str) -> dict[float, Mean]:
        """The curve of a method."""
        found = {v: mean_score(group, score) for v, group in self.lines[method].items()}
        return {value: mean for value, mean in found.items() if mean is not None}


def find_sweeps(records: Iterable[Record]) -> list[Sweep]:
    """Every setting that takes three values or more where nothing else differs but seeds."""
    groups: dict[tuple[str, str, int, str], dict[str, dict[float, list[Record]]]] = {}
    for record in records:
        for setting, value in _values(record):
            place = record.dataset, record.split, record.split_seed, setting
            line = groups.setdefault(place, {}).setdefault(_method(record), {})
            line.setdefault(value, []).append(record)
    sweeps = []
    for place, lines in sorted(groups.items()):
        curves = {m: dict(sorted(line.items())) for m, line in sorted(lines.items())}
        kept = {m: line for m, line in curves.items() if len(line) >= LEAST_VALUES}
        if kept:
            sweeps.append(Sweep(*place, kept))
    return sweeps


def _method(record: Record) -> str:
    return record.method + f" (preset {record.preset})" * (record.preset != "auto")


def _values(record: Record) -> Iterator[tuple[str, float]]:
    """The settings in which other runs may differ from this one alone, with its values."""
    if not record.changed:
        yield FRACTION, record.fraction
    if record.fraction != 1:
        return
    if not record.changed:
        yield from _preset_numbers(record.method, record.dataset, record.preset).items()
        return
    name, _, text = record.changed.partition("=")
    try:
        yield name, float(text)
    except ValueError:  # more changes than one, or no number
        return


@cache
def _preset_numbers(method: str, dataset: str, preset: str) -> dict[str, float]:
    name, _, kind = method.partition(":")
    values = preset_values(name, kind, dataset, preset)
    return {
        key: float(value)
        for key, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
