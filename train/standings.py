"""How methods stand against each other over several data sets: mean ranks, and paired tests.

As Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 2006, advises:
Friedman's test asks whether the mean ranks differ at all, Nemenyi's critical difference which of
them do, Wilcoxon's signed ranks whether one method is better than one other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.05
FEWEST_DATASETS, FEWEST_METHODS = 3, 3

Means = Mapping[str, Mapping[str, float]]
"""By data set and method: the mean over seeds of a score, greater is better."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Methods, each on the same data sets."""

    datasets: list[str]
    ranks: dict[str, float]
    """Mean rank over the data sets, best first; 1 is best, equal scores share theirs."""
    p_value: float
    """Friedman: how likely such different ranks would be if the methods were equally good."""
    critical_difference: float
    """Nemenyi: mean ranks that are less apart do not tell methods apart."""

    def groups(self) -> list[list[str]]:
        """Methods that the ranks do not tell apart; none that is part of a larger one."""
        names = list(self.ranks)
        found: list[list[str]] = []
        for start, first in enumerate(names):
            limit = self.ranks[first] + self.critical_difference
            group = [name for name in names[start:] if self.ranks[name] < limit]
            if len(group) > 1 and not (found and set(group) <= set(found[-1])):
                found.append(group)
        return found


def complete_part(means: Means) -> tuple[list[str], list[str]]:
    """The data sets to compare on and the methods that all of them have, as many cells as can be.

    Of equally many cells those of more data sets. Empty where too few of either remain.
    """
    # Whatever methods some data sets have in common is an intersection of their own.
    shared: set[frozenset[str]] = set()
    for own in {frozenset(row) for row in means.values()}:
        shared |= {own, *(own & other for other in shared)}
    parts = [
        (sorted(dataset for dataset, row in means.items() if methods <= row.keys()), methods)
        for methods in shared
    ]
    large = [
        (datasets, _in_order(methods, means[datasets[0]]))
        for datasets, methods in parts
        if len(datasets) >= FEWEST_DATASETS and len(methods) >= FEWEST_METHODS
    ]
    return max(large, key=_size, default=([], []))


def _in_order(methods: frozenset[str], row: Mapping[str, float]) -> list[str]:
    return [method for method in row if method in methods]


def _size(part: tuple[list[str], list[str]]) -> tuple[int, int, list[str], list[str]]:
    datasets, methods = part
    return len(datasets) * len(methods), len(datasets), datasets, methods


def standing(means: Means) -> Standing | None:
    """Ranks and tests on the complete part; None where too little is complete."""
    datasets, methods = complete_part(means)
    if not datasets:
        return None
    scores = np.array([[means[dataset][method] for method in methods] for dataset in datasets])
    ranks = stats.rankdata(-scores, axis=1).mean(0)
    count = len(methods)
    quantile = stats.studentized_range.ppf(1 - LEVEL, count, np.inf) / math.sqrt(2)
    return Standing(
        datasets=datasets,
        ranks={methods[place]: float(ranks[place]) for place in np.argsort(ranks, kind="stable")},
        p_value=float(stats.friedmanchisquare(*scores.T).pvalue),
        critical_difference=quantile * math.sqrt(count * (count + 1) / (6 * len(datasets))),
    )


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """One method against the baseline, over the data sets that have both."""

    datasets: int
    wins: int
    losses: int
    difference: float
    """Mean over data sets of its score less the baseline's."""
    p_value: float
    """Wilcoxon's signed ranks, two-sided; with n data sets never below 2 / 2^n."""


def pairings(means: Means, baseline: str) -> dict[str, Pairing]:
    """Every other method that shares two data sets or more with the baseline, best first."""
    found: dict[str, Pairing] = {}
    for method in dict.fromkeys(name for row in means.values() for name in row if name != baseline):
        shared = [row for row in means.values() if method in row and baseline in row]
        differences = np.array([row[method] - row[baseline] for row in shared])
        if len(differences) > 1:
            found[method] = Pairing(
                datasets=len(differences),
                wins=int((differences > 0).sum()),
                losses=int((differences < 0).sum()),
                difference=float(differences.mean()),
                p_value=float(stats.wilcoxon(differences).pvalue) if differences.any() else 1.0,
            )
    return dict(sorted(found.items(), key=lambda item: -item[1].difference))
