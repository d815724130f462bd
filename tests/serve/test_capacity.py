"""The model of docs/capacity.md: against formulas, and against the real batcher's rules."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.capacity.__main__ import find
from benchmarks.capacity.measuring import Cost, Point, fitted
from benchmarks.capacity.page import text
from benchmarks.capacity.queueing import Lane, Worker, simulate, workers_for

ALONE = Worker(per_batch=0.0, per_row=1e-3, max_batch_rows=1)
BATCHED = Worker(per_batch=1e-3, per_row=1e-4, max_batch_rows=64)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_without_batches_the_wait_is_that_of_a_queue_with_fixed_times(load):
    found = simulate(ALONE, load * 1000, requests=200_000)
    expected = load * 1e-3 / (2 * (1 - load))  # Pollaczek and Khinchine, for M/D/1
    assert found.latencies.mean() - 1e-3 == pytest.approx(expected, rel=0.05)
    assert found.busy == pytest.approx(load, rel=0.02)
    assert (found.rows_per_batch, found.refused) == (1, 0)


def test_a_random_share_of_a_fleet_is_like_a_worker_alone():
    alone = simulate(BATCHED, 2000, requests=100_000)
    fleet = simulate(BATCHED, 2000 * 32, workers=32, requests=100_000)
    assert fleet.quantile(0.99) == pytest.approx(alone.quantile(0.99), rel=0.05)


def test_knowing_how_full_two_workers_are_shortens_the_tail():
    p99 = {
        rule: simulate(
            BATCHED, 5000 * 16, workers=16, requests=60_000, balancing=rule
        ).quantile(0.99)
        for rule in ("random", "two choices", "round robin")
    }  # fmt: skip
    assert p99["two choices"] < p99["random"]
    assert p99["round robin"] < p99["random"]


def test_beyond_what_a_worker_can_do_the_rest_is_refused():
    found = simulate(BATCHED, 2 * BATCHED.rows_per_second, requests=100_000)
    assert found.refused == pytest.approx(0.5, abs=0.02)
    assert found.rows_per_batch == pytest.approx(64, rel=0.01)
    longest = (BATCHED.most_waiting + 64) / BATCHED.rows_per_second
    assert found.latencies.max() <= longest * 1.01


def test_a_batch_is_what_came_while_the_one_before_ran():
    lane, answered = Lane(BATCHED), np.full(4, np.nan)
    for number, arrived in enumerate([0.0, 0.0002, 0.0004, 0.01]):
        lane.advance(arrived, answered)
        lane.waiting.append((number, arrived))
    lane.advance(np.inf, answered)
    assert lane.batches == 3
    assert answered == pytest.approx([0.0011, 0.0011 + 0.0012 - 0.0002, 0.0023 - 0.0004, 0.0011])


def test_pods_are_rounded_up():
    assert workers_for(1000, ALONE, 0.5) == 2
    assert workers_for(1001, ALONE, 0.5) == 3


def test_costs_are_found_again():
    made = [Cost(rows_per_batch=n, seconds=2e-4 / n + 5e-5) for n in (1, 2, 7.5, 30)]
    worker = fitted(made)
    assert (worker.per_batch, worker.per_row) == pytest.approx((2e-4, 5e-5))


@pytest.mark.parametrize(("p50", "words"), [(1.0, "check nothing"), (2e-3, "the sender too")])
def test_the_page_says_whether_its_check_means_anything(monkeypatch, p50, words):
    monkeypatch.setattr("benchmarks.capacity.__main__.LOADS", (1000,))
    monkeypatch.setattr("benchmarks.capacity.__main__.SHARES", (0.5,))
    monkeypatch.setattr("benchmarks.capacity.__main__.REQUESTS_PER_WORKER", 50)
    found = find(BATCHED, [Point(load=100, p50=p50, p99=p50)], 1.0, 0.5)
    page = text(found, "capacity.svg")
    assert words in page
    assert f"| 1,000 | {workers_for(1000, BATCHED, 0.5)} |" in page
