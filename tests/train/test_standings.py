"""Ranks over data sets and the tests on them, against tables in print and counting by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from train.standings import complete_part, pairings, standing
from train.standings_page import EVERYWHERE, standings_by_field, standings_section

# Two-sided Nemenyi quantiles at 5 %, as printed in Demšar, JMLR 2006, Table 5(a).
PRINTED = {3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 7: 2.949, 8: 3.031, 9: 3.102, 10: 3.164}


def some_means(n_datasets: int, n_methods: int, seed: int = 0) -> dict[str, dict[str, float]]:
    scores = np.random.default_rng(seed).normal(size=(n_datasets, n_methods)).round(1)
    return {
        f"data{i}": {f"m{j}": float(value) for j, value in enumerate(row)}
        for i, row in enumerate(scores)
    }


@pytest.mark.parametrize(("count", "quantile"), PRINTED.items())
def test_critical_difference_is_the_printed_one(count, quantile):
    stands = standing(some_means(5, count))
    expected = quantile * math.sqrt(count * (count + 1) / (6 * 5))
    assert stands.critical_difference == pytest.approx(expected, rel=5e-4)


def test_ranks_are_counted_and_equal_scores_share_theirs():
    means = some_means(6, 5)
    stands = standing(means)
    for method, rank in stands.ranks.items():
        by_hand = []
        for row in means.values():
            above = sum(value > row[method] for value in row.values())
            same = sum(value == row[method] for value in row.values())
            by_hand.append(above + (same + 1) / 2)
        assert rank == pytest.approx(sum(by_hand) / 6)
    assert list(stands.ranks.values()) == sorted(stands.ranks.values())


def test_friedman_is_the_formula():
    means = {f"d{i}": dict(zip("abc", row, strict=True)) for i, row in enumerate(
        [(3, 2, 1), (3, 2, 1), (2, 3, 1), (3, 1, 2)])}  # fmt: skip
    stands = standing(means)
    assert stands.ranks == pytest.approx({"a": 1.25, "b": 2.0, "c": 2.75})
    squares = 12 * 4 / (3 * 4) * (1.25**2 + 2**2 + 2.75**2 - 3 * 4**2 / 4)
    assert stands.p_value == pytest.approx(math.exp(-squares / 2))  # chi-squared with 2 degrees


def test_groups_join_what_the_difference_does_not_tell_apart():
    means = {f"d{i}": {"a": 5, "b": 4, "c": 3, "d": 2, "e": 1} for i in range(8)}
    stands = standing(means)
    assert stands.critical_difference == pytest.approx(2.728 * math.sqrt(30 / 48), rel=1e-3)  # 2.16
    assert stands.groups() == [["a", "b", "c"], ["b", "c", "d"], ["c", "d", "e"]]


def test_only_methods_that_all_data_sets_have_are_ranked():
    means = some_means(4, 6)
    for method in ("m1", "m2", "m3", "m4"):
        del means["data3"][method]  # two methods are too few
    datasets, methods = complete_part(means)
    assert datasets == ["data0", "data1", "data2"]
    assert len(methods) == 6
    del means["data2"]
    assert standing(means) is None


def test_a_pair_is_tested_by_all_signs_of_its_differences():
    differences = [0.4, -0.1, 0.3, 0.2, 0.5]
    means = {f"d{i}": {"ce": 0.3, "seal": 0.3 + d} for i, d in enumerate(differences)}
    means["alone"] = {"ce": 0.9}
    (pair,) = pairings(means, "ce").values()
    assert (pair.datasets, pair.wins, pair.losses) == (5, 4, 1)
    assert pair.difference == pytest.approx(0.26)
    found = 4 + 3 + 2 + 5  # ranks of the positive ones; the others' are 1
    sums = [sum(c) for n in range(6) for c in itertools.combinations(range(1, 6), n)]
    extreme = sum(s >= found or s <= 15 - found for s in sums)
    assert pair.p_value == pytest.approx(extreme / 2**5)


def test_methods_without_any_difference_are_no_evidence():
    means = {f"d{i}": {"ce": 0.3, "seal": 0.3} for i in range(3)}
    assert pairings(means, "ce")["seal"].p_value == 1
    assert pairings({"d": {"ce": 1.0, "seal": 2.0}}, "ce") == {}


def test_all_data_sets_are_ranked_once_where_most_methods_were_run(record):
    records = [
        record(method, dataset=dataset, split=split, value=value)
        for dataset in ("one", "two", "three")
        for split, methods in (("60/20/20", "ab"), ("80/10/10", "abc"))
        for value, method in enumerate(methods)
    ]
    records += [
        record("a", dataset="one", split="80/10/10", value=9, **other)
        for other in ({"preset": "best"}, {"changed": "lr=1"}, {"fraction": 0.5}, {"split_seed": 1})
    ]
    records += [record(f"s:{kind}", dataset="two", split="60/20/20", value=5) for kind in "xyz"]
    ((name, by_score),) = standings_by_field(records).items()
    assert name == EVERYWHERE
    stands = by_score["fixed.example_f1"]
    assert stands.datasets == ["one", "three", "two"]
    assert stands.ranks == {"c": 1, "b": 2, "a": 3}
    section = standings_section(records, "page")
    assert "### All data sets\n" in section
    assert "| c | 1.00 |" in section
    assert "(page-all-data-sets.svg)" in section


@pytest.mark.parametrize("seed", range(20))
def test_no_complete_part_is_larger(seed):
    there = np.random.default_rng(seed).random((7, 6)) < 0.7
    means = {
        f"d{i}": {f"m{j}": 0.5 for j in range(6) if there[i, j]} for i in range(7) if there[i].any()
    }
    largest = 0
    for count in range(3, 7):
        for chosen in itertools.combinations(range(6), count):
            complete = int(there[:, chosen].all(1).sum())
            largest = max(largest, complete * count if complete >= 3 else 0)
    datasets, methods = complete_part(means)
    assert len(datasets) * len(methods) == largest
    assert all(method in means[dataset] for dataset in datasets for method in methods)
