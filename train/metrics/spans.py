"""Metrics of spans of words: F1 as `conlleval` counts it, by role, and how often roles collide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from train.errors import DataError
from train.spans import Marks, is_core, spans_of

PREDICATE = "V"
"""Given with the input, so it is not counted."""


@dataclass(frozen=True)
class SpanCounts:
    """Spans that are hits, predicted and true."""

    hits: int
    predicted: int
    true: int

    @property
    def precision(self) -> float:
        """Share of the predicted spans that are true, 0/0 = 0."""
        return self.hits / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the true spans that are predicted, 0/0 = 0."""
        return self.hits / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """Their harmonic mean, 0/0 = 0."""
        return 2 * self.hits / (self.predicted + self.true) if self.predicted + self.true else 0.0


def count_spans(
    predicted: Iterable[Marks], true: Iterable[Marks], *, ignore: Sequence[str] = (PREDICATE,)
) -> dict[str, SpanCounts]:
    """Count by role; a hit has the role and both ends of a true span of its row.

    predicted, true: the marks of each row, equally many; ignore: roles that are left out.
    """
    hits: Counter[str] = Counter()
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for guess, truth in zip(predicted, true, strict=True):
        if len(guess) != len(truth):
            raise DataError(f"a row of {len(truth)} words has {len(guess)} predicted marks")
        guessed, known = set(spans_of(guess)), set(spans_of(truth))
        hits.update(role for role, _, _ in guessed & known)
        found.update(role for role, _, _ in guessed)
        wanted.update(role for role, _, _ in known)
    roles = sorted((found.keys() | wanted.keys()) - set(ignore))
    return {role: SpanCounts(hits[role], found[role], wanted[role]) for role in roles}


def total_spans(by_role: dict[str, SpanCounts]) -> SpanCounts:
    """All roles together: what `conlleval` calls overall."""
    counts = by_role.values()
    return SpanCounts(
        sum(count.hits for count in counts),
        sum(count.predicted for count in counts),
        sum(count.true for count in counts),
    )


def core_role_violations(rows: Sequence[Marks]) -> float:
    """Share of rows, one a predicate, in which some core role has two spans or more."""
    if not rows:
        raise DataError("no rows: there is nothing to count")
    return sum(map(_repeats_a_core_role, rows)) / len(rows)


def _repeats_a_core_role(marks: Marks) -> bool:
    roles = Counter(role for role, _, _ in spans_of(marks) if is_core(role))
    return any(count > 1 for count in roles.values())
