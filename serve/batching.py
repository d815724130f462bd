"""MicroBatcher: rows of many requests in one call of the model, without ever waiting for more.

A batch is what arrived in one turn of the event loop, or while the batch before it ran. So a lone
request is never delayed, and the busier the server the larger the batches. Requests that need the
scores of all labels have batches of their own: for the others they would cost, too.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from serve.errors import BusyError, ClientGoneError, DeadlinePassedError, TooLargeError
from serve.inputs import Rows, joined
from serve.predictor import Embedded, Scored

# Below this a hand-over to a thread costs more than it frees the event loop.
INLINE_SECONDS = 4e-3
MAX_RETRY_SECONDS = 60
# Weight of the newest batch in the running mean of rows per second.
NEWEST = 0.2


class Predictor(Protocol):
    """What a batcher needs of a model."""

    @property
    def seconds_per_batch(self) -> float:
        """Seconds that a full batch takes."""
        ...

    @property
    def reads_text(self) -> bool:
        """Whether rows are texts, of which a few may take as long as a full batch of others."""
        ...

    def run(self, rows: Rows, k: int, *, with_scores: bool = False) -> Answer:
        """Score rows and rank the best k labels of each, or embed them."""
        ...


Answer = Scored | Embedded


class Finished(NamedTuple):
    """The answer to one job, as rows of the answer to its batch."""

    batch: Answer
    start: int
    end: int
    queue_seconds: float
    inference_seconds: float

    @property
    def answer(self) -> Answer:
        """The answer to this job alone."""
        return self.batch.rows(self.start, self.end)


Outcome = Finished | Exception


@dataclass(slots=True)
class Job:
    """Rows that wait for a model; `done` is called exactly once, in the event loop."""

    inputs: Rows
    k: int
    with_scores: bool
    done: Callable[[Outcome], None]
    deadline: float = math.inf
    """On the batcher's clock."""
    answer_bytes: int = 0
    """What the answer will take in memory, where that is much."""
    submitted: float = field(default=0.0, init=False)
    is_abandoned: bool = field(default=False, init=False)
    """Set by whoever learns that nobody waits for the answer any more."""

    rows: int = field(init=False)
    """Rows of this job."""
    nbytes: int = field(init=False)
    """What its rows and their answer take in memory."""

    def __post_init__(self) -> None:
        # Counted once: a batch asks for them many times.
        self.rows = len(self.inputs)
        self.nbytes = self.inputs.nbytes + self.answer_bytes


class MicroBatcher:
    """The queue in front of one model.

    Args:
        predictor: The model.
        max_batch_rows: Rows that go into one call; a job larger than that runs alone.
        max_queue_rows: Rows that may wait; beyond it `submit` raises `BusyError`.
        max_queue_bytes: What they and their answers may take in memory; likewise.
        max_wait_seconds: How long those that wait may be expected to take; likewise.
        on_batch: Told the rows and seconds of each batch.
        clock: Seconds; deadlines of jobs are on it.
    """

    def __init__(
        self,
        predictor: Predictor,
        *,
        max_batch_rows: int,
        max_queue_rows: int,
        max_queue_bytes: int,
        max_wait_seconds: float = math.inf,
        on_batch: Callable[[int, float], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._predictor = predictor
        self._max_batch_rows = max_batch_rows
        self._max_queue_rows = max_queue_rows
        self._max_queue_bytes = max_queue_bytes
        self._max_wait_seconds = max_wait_seconds
        self._on_batch = on_batch
        self._clock = clock
        self._queue: deque[Job] = deque()
        self._is_busy = False  # a turn is scheduled, or a batch runs in the thread
        is_fast = predictor.seconds_per_batch < INLINE_SECONDS
        self._is_fast = is_fast and not predictor.reads_text
        self._rows_per_second = max_batch_rows / max(predictor.seconds_per_batch, 1e-9)
        """From the queue to written answers, reading of other requests meanwhile included."""
        self._last_delivery = -math.inf
        self._thread: ThreadPoolExecutor | None = None
        self.queued_rows = 0
        self.queued_bytes = 0

    def limit(self, *, max_queue_rows: int, max_wait_seconds: float) -> None:
        """Change what may wait, from the next job on."""
        self._max_queue_rows = max_queue_rows
        self._max_wait_seconds = max_wait_seconds

    def runs_inline(self, rows: int) -> bool:
        """Whether so many rows are scored in the event loop itself, in its next turn."""
        return self._is_fast and rows <= self._max_batch_rows

    def submit(self, job: Job) -> None:
        """Queue a job; must be called in the event loop.

        Raises:
            BusyError: So many rows wait already that this job does not fit.
            TooLargeError: It would not even fit into an empty queue.
        """
        self._check_room(job)
        job.submitted = self._clock()
        self._queue.append(job)
        self.queued_rows += job.rows
        self.queued_bytes += job.nbytes
        if not self._is_busy:
            self._schedule()

    def _check_room(self, job: Job) -> None:
        if job.nbytes > self._max_queue_bytes:
            raise TooLargeError(
                f"the rows and their scores would take {job.nbytes} bytes, and at most "
                f"{self._max_queue_bytes} may wait: send them in parts"
            )
        if self.queued_rows + job.rows > self._max_queue_rows:
            raise self._busy(f"at most {self._max_queue_rows}")
        self._check_wait()
        if self.queued_bytes + job.nbytes > self._max_queue_bytes:
            raise self._busy(f"{self._max_queue_bytes} bytes")

    def check_open(self) -> None:
        """Refuse a request that was not even read: under overload reading is what costs most.

        Raises:
            BusyError: Not one row more may wait.
        """
        if self.queued_rows >= self._max_queue_rows:
            raise self._busy(f"at most {self._max_queue_rows}")
        self._check_wait()

    def _check_wait(self) -> None:
        # Without rows that wait there is nothing to wait for but the batch that runs.
        most = self._max_wait_seconds * self._rows_per_second
        if self.queued_rows and self.queued_rows >= most:
            raise self._busy(f"as many as take {self._max_wait_seconds * 1e3:g} ms")

    def _busy(self, most: str) -> BusyError:
        seconds = self._seconds_to_drain()
        return BusyError(
            f"{self.queued_rows} rows wait already and {most} may: try again in {seconds} s",
            retry_after=seconds,
        )

    def close(self) -> None:
        """End the worker thread, once the batch that it runs is done."""
        if self._thread:
            self._thread.shutdown()

    def _seconds_to_drain(self) -> int:
        seconds = math.ceil(self.queued_rows / self._rows_per_second)
        return min(max(seconds, 1), MAX_RETRY_SECONDS)

    def _schedule(self) -> None:
        self._is_busy = True
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_busy = False
        batch = self._next_batch()
        if not batch:
            return
        started = self._clock()
        if self.runs_inline(sum(job.rows for job in batch)):
            self._deliver(batch, started, _outcome(self._predictor, batch))
        else:
            self._run_in_thread(batch, started)
        if self._queue and not self._is_busy:
            self._schedule()

    def _run_in_thread(self, batch: list[Job], started: float) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")
        self._is_busy = True
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._thread, _outcome, self._predictor, batch)
        running.add_done_callback(lambda done: self._thread_done(batch, started, done))

    def _thread_done(
        self, batch: list[Job], started: float, done: asyncio.Future[Answer | Exception]
    ) -> None:
        self._deliver(batch, started, done.result())
        self._is_busy = False
        if self._queue:
            self._schedule()

    def _next_batch(self) -> list[Job]:
        """Take jobs in their order up to the cap, and send away those nobody waits for.

        Those that are not of the kind of the first stay in their order for the next batch.
        """
        batch: list[Job] = []
        others: list[Job] = []
        rows, now = 0, self._clock()
        while self._queue:
            job = self._queue[0]
            if batch and rows + job.rows > self._max_batch_rows:
                break
            self._queue.popleft()
            if not self._is_wanted(job, now):
                continue
            if batch and job.with_scores != batch[0].with_scores:
                others.append(job)
            else:
                batch.append(job)
                rows += job.rows
        self._queue.extendleft(reversed(others))
        for job in batch:
            self._leave(job)
        return batch

    def _is_wanted(self, job: Job, now: float) -> bool:
        """Whether a job is worth its run; if not it is told."""
        if job.is_abandoned:
            self._leave(job)
            job.done(ClientGoneError())
            return False
        if now >= job.deadline:
            self._leave(job)
            waited = (now - job.submitted) * 1e3
            job.done(
                DeadlinePassedError(
                    f"the request's time ran out after {waited:.0f} ms in the queue"
                )
            )
            return False
        return True

    def _leave(self, job: Job) -> None:
        self.queued_rows -= job.rows
        self.queued_bytes -= job.nbytes

    def _deliver(self, batch: list[Job], started: float, outcome: Answer | Exception) -> None:
        seconds = max(self._clock() - started, 1e-9)
        rows = sum(job.rows for job in batch)
        if isinstance(outcome, Exception):
            for job in batch:
                job.done(outcome)
            return
        self._on_batch(rows, seconds)
        end = 0
        for job in batch:
            start, end = end, end + job.rows
            job.done(Finished(outcome, start, end, started - job.submitted, seconds))
        self._learn_rate(batch[0], rows)

    def _learn_rate(self, first: Job, rows: int) -> None:
        """Rows a second from when the first of a batch was read, or the batch before was done."""
        now = self._clock()
        seconds = now - max(first.submitted, self._last_delivery)
        self._last_delivery = now
        self._rows_per_second += NEWEST * (rows / max(seconds, 1e-9) - self._rows_per_second)


def _outcome(predictor: Predictor, batch: list[Job]) -> Answer | Exception:
    """Score a batch with the largest k in it; an error becomes a value, to reach every job."""
    k = max(job.k for job in batch)
    try:
        inputs = joined([job.inputs for job in batch])
        return predictor.run(inputs, k, with_scores=batch[0].with_scores)
    except Exception as error:  # noqa: BLE001 - it is passed on to every request of the batch
        return error
