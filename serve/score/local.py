"""Chunks in processes of this machine.

A worker is a fresh process at the end of a pipe. If the pipe closes, its worker is dead and another
one gets the chunk; if the worker's end closes, the job is, and the worker ends.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from serve.score.plan import Chunk, Job
from serve.score.scorer import score_chunk
from train.errors import UserError
from train.interruption import interruptions

RETRIES = 3
"""How often a chunk is begun again after its worker has died."""
POLL_SECONDS = 0.2

Tell = Callable[[Chunk], None]


class Worker(NamedTuple):
    """A process, and what it works on."""

    process: BaseProcess
    chunk: Chunk


def score_here(job: Job, chunks: Sequence[Chunk], workers: int, tell: Tell) -> bool:
    """Score chunks until none is left or somebody asks to stop; whether none is left."""
    workers = min(workers, len(chunks))
    with interruptions() as interrupted:
        if workers > 1:
            return _Pool(job, chunks, tell).run(workers, interrupted.is_set)
        for chunk in chunks:
            if interrupted.is_set():
                return False
            raise_if_any(score_chunk(job, chunk))
            tell(chunk)
    return True


def raise_if_any(error: Exception | None) -> None:
    """What went wrong in another process goes wrong here."""
    if error is not None:
        raise error


def lost(chunk: Chunk, job: Job) -> UserError:
    """A chunk on which one worker after the other has died."""
    return UserError(
        f"{RETRIES + 1} workers died on {job.output(chunk).name}: give them more memory, or a "
        "smaller --chunk-rows in another folder"
    )


class _Pool:
    def __init__(self, job: Job, chunks: Sequence[Chunk], tell: Tell) -> None:
        self._job, self._tell = job, tell
        self._waiting = deque(chunks)
        self._deaths: Counter[Chunk] = Counter()
        self._busy: dict[Connection, Worker] = {}

    def run(self, workers: int, is_interrupted: Callable[[], bool]) -> bool:
        try:
            for _ in range(workers):
                self._start()
            while self._busy and not is_interrupted():
                for pipe in wait(list(self._busy), POLL_SECONDS):
                    assert isinstance(pipe, Connection)  # noqa: S101 - we wait for nothing else
                    self._hear(pipe)
            return not self._busy
        finally:
            self._end()

    def _start(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        # Fresh ones: a fork after ONNX Runtime or Arrow started threads may hang.
        process = multiprocessing.get_context("spawn").Process(
            target=_work, args=(self._job, theirs), daemon=True
        )
        process.start()
        theirs.close()
        self._give(ours, process)

    def _give(self, pipe: Connection, process: BaseProcess) -> None:
        chunk = self._waiting.popleft()
        self._busy[pipe] = Worker(process, chunk)
        with suppress(BrokenPipeError):  # it died just now, which `wait` will tell
            pipe.send(chunk)

    def _hear(self, pipe: Connection) -> None:
        worker = self._busy.pop(pipe)
        try:
            error = pipe.recv()
        except (EOFError, ConnectionResetError):
            pipe.close()
            self._bury(worker)
            return
        if error is not None:
            pipe.close()
            raise error
        self._tell(worker.chunk)
        if self._waiting:
            self._give(pipe, worker.process)
        else:
            pipe.close()
            worker.process.join()

    def _bury(self, worker: Worker) -> None:
        worker.process.join()
        self._deaths[worker.chunk] += 1
        if self._deaths[worker.chunk] > RETRIES:
            raise lost(worker.chunk, self._job)
        self._waiting.appendleft(worker.chunk)
        self._start()

    def _end(self) -> None:
        """Let the others finish their chunks, which are kept, and end."""
        for pipe in self._busy:
            pipe.close()
        for worker in self._busy.values():
            worker.process.join()


def _work(job: Job, pipe: Connection) -> None:
    # Ctrl-C in a terminal reaches all processes, and the first one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            chunk = pipe.recv()
            pipe.send(score_chunk(job, chunk))
        except (EOFError, OSError):
            return
