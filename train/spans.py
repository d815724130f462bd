"""Spans of words by the labels that words bear: `B-ROLE`, `I-ROLE` or `O`. It needs nothing else.

As in `conlleval`, the program of the CoNLL shared tasks, an `I-ROLE` that continues no span of its
role begins one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from train.errors import DataError

Span: TypeAlias = tuple[str, int, int]
"""Role, first word, last word."""
Marks: TypeAlias = Sequence[str]
"""`B-ROLE`, `I-ROLE` or `O` of each word of a row."""

CORE_ROLE = re.compile(r"A(RG)?[0-5A]")
"""ARG0 to ARG5 and ARGA, in either spelling; continuations (C-ARG1) and references do not count."""


def is_core(role: str) -> bool:
    """Whether a predicate has at most one argument of this role."""
    return CORE_ROLE.fullmatch(role) is not None


def spans_of(marks: Marks) -> Iterator[Span]:
    """The spans of one row, from left to right."""
    role, start = "", 0
    for place, mark in enumerate([*marks, "O"]):
        kind, _, next_role = mark.partition("-")
        if kind not in ("B", "I", "O") or (kind == "O") == bool(next_role):
            raise DataError(f"word {place} bears {mark!r}: it must be O, B-ROLE or I-ROLE")
        if role and (kind != "I" or next_role != role):
            yield role, start, place - 1
            role = ""
        if kind != "O" and not role:
            role, start = next_role, place
