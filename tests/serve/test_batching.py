from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.batching import Finished, Job, MicroBatcher
from serve.errors import BusyError, ClientGoneError, DeadlinePassedError, TooLargeError
from serve.inputs import DenseRows, TextRows
from serve.predictor import Scored

WIDTH, LABELS, CAP = 2, 5, 4
WEIGHTS = np.random.default_rng(3).normal(size=(WIDTH, LABELS)).astype(np.float32)


class Model:
    """Scores rows with numpy and remembers how it was called."""

    def __init__(self, *, is_fast=True, gate=None, error=None):
        self.seconds_per_batch = 1e-6 if is_fast else 1.0
        self.reads_text = False
        self.calls = []
        self.threads = set()
        self._gate, self._error = gate, error

    def run(self, rows, k, *, with_scores=False):
        features = rows.features
        self.calls.append((len(features), k, with_scores))
        self.threads.add(threading.current_thread())
        if self._gate:
            assert self._gate.wait(10)
        if self._error:
            raise self._error
        return reference(features, k, with_scores)


def reference(features, k, with_scores):
    scores = features @ WEIGHTS
    labels = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    top = np.take_along_axis(scores, labels, axis=1)
    return Scored(top, labels, scores if with_scores else None)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def batcher_of(model, **options):
    options = {
        "max_batch_rows": CAP,
        "max_queue_rows": 10**6,
        "max_queue_bytes": 10**9,
        "on_batch": lambda *_: None,
        **options,
    }
    return MicroBatcher(model, **options)


def rows(count, seed=0):
    return DenseRows(np.random.default_rng(seed).normal(size=(count, WIDTH)).astype(np.float32))


def waiting(features, k=2, with_scores=False, **options):
    """A job and the future of its outcome; the future fails if it is answered twice."""
    future = asyncio.get_running_loop().create_future()
    return Job(features, k, with_scores, future.set_result, **options), future


jobs = st.tuples(st.integers(1, 2 * CAP), st.integers(1, LABELS), st.booleans())


@given(st.lists(st.lists(jobs, max_size=6), max_size=4), st.booleans())
def test_every_request_is_answered_once_with_its_own_rows(turns, is_fast):
    model = Model(is_fast=is_fast)
    seed = iter(range(1000))

    async def main():
        batcher, sent = batcher_of(model), []
        for turn in turns:
            for count, k, with_scores in turn:
                job, future = waiting(rows(count, next(seed)), k, with_scores)
                batcher.submit(job)
                sent.append((job, future))
            await asyncio.sleep(0)
        outcomes = [await future for _, future in sent]
        batcher.close()
        assert batcher.queued_rows == 0
        return [job for job, _ in sent], outcomes

    sent, outcomes = asyncio.run(main())
    for job, outcome in zip(sent, outcomes, strict=True):
        expected = reference(job.inputs.features, job.k, True)
        got = outcome.answer
        np.testing.assert_array_equal(got.top_labels[:, : job.k], expected.top_labels)
        np.testing.assert_allclose(got.top_scores[:, : job.k], expected.top_scores, rtol=1e-5)
        if job.with_scores:
            np.testing.assert_allclose(got.scores, expected.scores, rtol=1e-5)
    assert sum(count for count, _, _ in model.calls) == sum(job.rows for job in sent)
    large = [job.rows for job in sent if job.rows > CAP]
    assert sorted(count for count, _, _ in model.calls if count > CAP) == sorted(large)


def test_one_turn_is_one_batch_with_the_largest_k():
    model = Model()

    async def main():
        batcher = batcher_of(model)
        sent = [waiting(rows(1), k) for k in (1, 3)]
        for job, _ in sent:
            batcher.submit(job)
        return [await future for _, future in sent]

    asyncio.run(main())
    assert model.calls == [(2, 3, False)]
    assert model.threads == {threading.current_thread()}


def test_requests_for_all_scores_have_batches_of_their_own():
    model = Model()

    async def main():
        batcher = batcher_of(model)
        sent = [waiting(rows(1), 1, with_scores) for with_scores in (False, True, False, True)]
        for job, _ in sent:
            batcher.submit(job)
        outcomes = [await future for _, future in sent]
        assert batcher.queued_rows == batcher.queued_bytes == 0
        return outcomes

    outcomes = asyncio.run(main())
    assert model.calls == [(2, 1, False), (2, 1, True)]
    assert [outcome.answer.scores is None for outcome in outcomes] == [True, False, True, False]


def test_a_queue_is_full_when_its_bytes_are():
    model = Model(is_fast=False)

    async def main():
        batcher = batcher_of(model, max_queue_bytes=100)
        first, future = waiting(rows(2))  # 16 bytes
        batcher.submit(replace(first, answer_bytes=60))
        second, _ = waiting(rows(4))
        with pytest.raises(BusyError, match="2 rows wait already and 100 bytes may"):
            batcher.submit(second)
        huge, _ = waiting(rows(13))
        with pytest.raises(TooLargeError, match="would take 104 bytes"):
            batcher.submit(huge)
        await future
        batcher.submit(second)
        batcher.close()

    asyncio.run(main())


def test_texts_never_run_in_the_event_loop():
    model = Model()
    model.reads_text = True
    assert not batcher_of(model).runs_inline(len(TextRows(["a"])))


def test_what_arrives_while_a_batch_runs_is_the_next_batch():
    gate = threading.Event()
    model = Model(is_fast=False, gate=gate)

    async def main():
        batcher = batcher_of(model)
        first, first_done = waiting(rows(1))
        batcher.submit(first)
        while not model.calls:
            await asyncio.sleep(0)
        later = [waiting(rows(1, seed)) for seed in range(3)]
        for job, _ in later:
            batcher.submit(job)
            await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(first_done, *(future for _, future in later))
        batcher.close()

    asyncio.run(main())
    assert [count for count, _, _ in model.calls] == [1, 3]
    assert threading.current_thread() not in model.threads


def test_a_large_request_to_a_fast_model_leaves_the_event_loop_free():
    model = Model(is_fast=True)

    async def main():
        batcher = batcher_of(model)
        job, future = waiting(rows(CAP + 1))
        assert not batcher.runs_inline(job.rows)
        batcher.submit(job)
        await future
        batcher.close()

    asyncio.run(main())
    assert threading.current_thread() not in model.threads


def test_a_full_queue_refuses_with_a_time_from_the_drain_rate():
    model = Model(is_fast=False)  # CAP rows a second

    async def main():
        batcher = batcher_of(model, max_queue_rows=10)
        accepted, future = waiting(rows(9))
        batcher.submit(accepted)
        refused, _ = waiting(rows(2))
        with pytest.raises(BusyError) as caught:
            batcher.submit(refused)
        fits, fits_done = waiting(rows(1))
        batcher.submit(fits)
        await asyncio.gather(future, fits_done)
        batcher.submit(refused)
        batcher.close()
        return caught.value

    busy = asyncio.run(main())
    assert busy.retry_after == 3  # 9 rows at 4 rows a second
    assert "9 rows wait already and at most 10 may" in str(busy)


def test_late_and_abandoned_requests_are_dropped_unscored():
    model, clock = Model(), Clock()

    async def main():
        batcher = batcher_of(model, clock=clock)
        late, late_done = waiting(rows(1), deadline=5.0)
        gone, gone_done = waiting(rows(1))
        good, good_done = waiting(rows(1), deadline=5.1)
        for job in (late, gone, good):
            batcher.submit(job)
        gone.is_abandoned = True
        clock.now = 5.0
        return await asyncio.gather(late_done, gone_done, good_done)

    late, gone, good = asyncio.run(main())
    assert isinstance(late, DeadlinePassedError)
    assert "5000 ms in the queue" in str(late)
    assert isinstance(gone, ClientGoneError)
    assert isinstance(good, Finished)
    assert good.queue_seconds == 5.0
    assert [count for count, _, _ in model.calls] == [1]


@pytest.mark.parametrize("is_fast", [True, False])
def test_an_error_reaches_every_request_of_the_batch_and_the_next_batch_runs(is_fast):
    error = RuntimeError("broken")
    model = Model(is_fast=is_fast, error=error)

    async def main():
        batcher = batcher_of(model)
        sent = [waiting(rows(CAP - 1)) for _ in range(3)]
        for job, _ in sent:
            batcher.submit(job)
        outcomes = await asyncio.gather(*(future for _, future in sent))
        batcher.close()
        return outcomes

    assert asyncio.run(main()) == [error] * 3
    assert len(model.calls) == 3


def test_batches_are_reported():
    reports = []

    async def main():
        batcher = batcher_of(
            Model(), on_batch=lambda count, seconds: reports.append((count, seconds))
        )
        job, future = waiting(rows(3))
        batcher.submit(job)
        await future

    asyncio.run(main())
    [(count, seconds)] = reports
    assert count == 3
    assert seconds > 0


def test_beyond_the_expected_wait_jobs_are_refused_but_one_may_always_wait():
    clock, model = Clock(), Model(is_fast=False, gate=threading.Event())

    async def main():
        # The model takes a second for CAP rows, so two seconds are two batches.
        batcher = batcher_of(model, max_wait_seconds=2.0, clock=clock)
        sent = [waiting(rows(1)) for _ in range(2 * CAP)]
        for job, _ in sent:
            batcher.submit(job)
        with pytest.raises(BusyError, match="as many as take 2000 ms"):
            batcher.submit(waiting(rows(1))[0])
        with pytest.raises(BusyError):
            batcher.check_open()
        model._gate.set()
        for _, future in sent:
            await future
        batcher.check_open()
        batcher.close()
        short = batcher_of(model, max_wait_seconds=1e-9, clock=clock)
        short.submit(waiting(rows(CAP))[0])
        with pytest.raises(BusyError):
            short.check_open()
        short.close()

    asyncio.run(main())
