"""Counting in shared memory: sums over workers, and workers that take another's place."""

from __future__ import annotations

import os

import numpy as np
import pytest

from serve.counters import Counters, Histogram
from serve.telemetry import SECONDS, ModelTotals


def test_a_histogram_counts_what_is_at_most_each_bound():
    cells = Counters().slabs[0].series(("seconds",), 5)
    histogram = Histogram(cells, (1.0, 2.0, 4.0))
    for value in (0.5, 1.0, 1.5, 4.0, 9.0):
        histogram.observe(value)
    assert cells.tolist() == [16.0, 2.0, 1.0, 1.0, 1.0]


def test_series_are_added_up_over_workers_whatever_their_order():
    counters = Counters(3)
    first, second, _ = counters.slabs
    first.series(("a", "x"))[0] += 1
    first.series(("b",), 2)[1] += 5
    second.series(("b",), 2)[1] += 7
    second.series(("c", "ü"))[0] += 3
    second.series(("a", "x"))[0] += 2
    assert counters.totals() == {("a", "x"): [3.0], ("b",): [0.0, 12.0], ("c", "ü"): [3.0]}


def test_a_series_is_the_same_numbers_whenever_it_is_asked_for():
    slab = Counters().slabs[0]
    slab.series(("a",))[0] += 1
    slab.series(("b",))[0] += 10
    slab.series(("a",))[0] += 1
    assert dict(slab.items()) == {("a",): [2.0], ("b",): [10.0]}


def test_another_process_counts_where_this_one_can_read_it():
    counters = Counters(2)
    counters.slabs[0].series(("a",))[0] += 1
    for _ in range(2):  # the second takes the place of the first
        child = os.fork()
        if child == 0:
            counters.slabs[1].series(("a",))[0] += 10
            counters.slabs[1].series(("new",))[0] += 5
            os._exit(0)
        os.waitpid(child, 0)
    assert counters.totals() == {("a",): [21.0], ("new",): [10.0]}


def test_too_many_series_are_an_error_and_damage_nothing():
    slab = Counters().slabs[0]
    slab.series(("a",))[0] = 3.0
    with pytest.raises(MemoryError):
        slab.series(("b",), 2**30)
    assert dict(slab.items()) == {("a",): [3.0]}


def test_quantiles_read_off_a_histogram_are_within_a_bucket_of_the_true_ones():
    values = sorted(np.random.default_rng(0).lognormal(-6, 1, 5000).tolist())
    cells = Counters().slabs[0].series(("s",), len(SECONDS) + 2)
    for value in values:
        Histogram(cells, SECONDS).observe(value)
    totals = ModelTotals(request_seconds=cells.tolist())
    for share in (0.5, 0.95, 0.99):
        true = values[int(share * len(values)) - 1]
        low = max((bound for bound in SECONDS if bound < true), default=0.0)
        high = min(bound for bound in SECONDS if bound >= true)
        assert low <= totals.quantile(share) <= high


def test_quantiles_of_nothing_and_of_the_very_slow():
    assert ModelTotals().quantile(0.5) is None
    cells = [0.0] * (len(SECONDS) + 1) + [3.0]
    assert ModelTotals(request_seconds=cells).quantile(0.5) == SECONDS[-1]
