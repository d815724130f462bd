"""Label names: they are what a prediction consists of, so each must be one and readable."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from train.doctor.finding import SHOWN, Finding, columns_named, counted


def name_findings(labels: Sequence[str]) -> list[Finding]:
    """Names that are empty, given twice, or hard to tell apart."""
    return [*_empty(labels), *_repeated(labels), *_alike(labels)]


def _empty(labels: Sequence[str]) -> Iterator[Finding]:
    empty = np.array([number for number, name in enumerate(labels) if not name.strip()])
    if len(empty):
        yield Finding(
            severity="error",
            what=counted(len(empty), "label has an empty name", "labels have an empty name"),
            where=columns_named("column", empty, ()),
            advice="name them: predictions consist of label names",
        )


def _repeated(labels: Sequence[str]) -> Iterator[Finding]:
    repeated = [name for name, times in Counter(labels).items() if times > 1 and name.strip()]
    if repeated:
        yield Finding(
            severity="error",
            what=counted(len(repeated), "label name is", "label names are")
            + " given more than once",
            where=columns_named("label", np.arange(len(repeated)), repeated),
            advice="rename or merge them: a prediction could not say which one is meant",
        )


def _alike(labels: Sequence[str]) -> Iterator[Finding]:
    spellings: dict[str, set[str]] = defaultdict(set)
    for name in filter(str.strip, labels):
        spellings["".join(name.split()).casefold()].add(name)
    alike = [sorted(names) for names in spellings.values() if len(names) > 1]
    if alike:
        quoted = [" and ".join(map(repr, names)) for names in alike[:SHOWN]]
        rest = f" and {len(alike) - SHOWN} more" if len(alike) > SHOWN else ""
        yield Finding(
            severity="warning",
            what=f"{counted(len(alike), 'label is', 'labels are')} spelled in several ways that "
            "differ only in case or white space",
            where="; ".join(quoted) + rest,
            advice="merge them if they mean the same",
        )
