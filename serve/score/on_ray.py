"""Chunks on the machines of a Ray cluster, which must all see the bundle, inputs and folder.

A chunk whose worker dies is begun again on another one; its file appears once, when it is whole.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import ray

from serve.score.local import RETRIES, Tell, lost, raise_if_any
from serve.score.plan import Chunk, Job
from serve.score.scorer import score_chunk
from train.errors import ConfigError
from train.interruption import interruptions

POLL_SECONDS = 1.0
AHEAD = 2
"""Chunks given out for each processor: the next one waits there when one is done."""


def score_on_ray(
    job: Job, chunks: Sequence[Chunk], workers: int, address: str | None, tell: Tell
) -> bool:
    """As `score_here`, with one chunk at a time on each processor, or on `workers` of them."""
    ray.init(
        address=address, include_dashboard=False, log_to_driver=False,
        logging_level=logging.ERROR, ignore_reinit_error=True,
    )  # fmt: skip
    # A worker process of Ray runs many tasks of a job, and `score_chunk` keeps the bundle loaded.
    begin = ray.remote(score_chunk).options(num_cpus=1, max_retries=RETRIES)
    shared = ray.put(job)
    waiting, running = deque(chunks), dict[Any, Chunk]()
    with interruptions() as interrupted:
        while (waiting or running) and not interrupted.is_set():
            while waiting and len(running) < _room(workers):
                chunk = waiting.popleft()
                running[begin.remote(shared, chunk)] = chunk
            done, _ = ray.wait(list(running), timeout=POLL_SECONDS) if running else ([], [])
            for reference in done:
                _end(job, running.pop(reference), reference, tell)
            if not running:
                time.sleep(0 if done else POLL_SECONDS)  # no machine is there at present
        for reference in running:
            ray.cancel(reference, force=True)
    return not waiting and not running


def _end(job: Job, chunk: Chunk, reference: Any, tell: Tell) -> None:  # noqa: ANN401 - Ray's
    try:
        error = ray.get(reference)
    except ray.exceptions.RayTaskError:
        raise  # our bug
    except ray.exceptions.RayError as death:
        raise lost(chunk, job) from death
    raise_if_any(error)
    if not job.output(chunk).exists():
        raise ConfigError(
            f"a worker wrote {job.output(chunk)}, which is not here: give a folder as --output "
            "that all machines share"
        )
    tell(chunk)


def _room(workers: int) -> int:
    """How many chunks the cluster, as it is now, is given at a time."""
    there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return workers or AHEAD * int(there.get("CPU", 0.0))
