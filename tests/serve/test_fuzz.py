"""Whatever is sent, the answer is the right scores or one sentence, and the server lives on."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import socket
import subprocess
import time
from contextlib import ExitStack

import httpx
import numpy as np
import pytest

from serve.batching import Finished, Job, MicroBatcher
from serve.errors import ApiError, ClientGoneError, DeadlinePassedError
from serve.inputs import DenseRows
from serve.predictor import Scored
from tests.serve.fuzzing import SCALE, check_body, garbage_case, parsed, request_case
from tests.serve.live import Wire, request

PARSER_CASES = 20_000 * SCALE
HTTP_CASES = 2_000 * SCALE
PIPELINED = 40
STATUSES = {200, 400, 404, 408, 413, 415, 422, 429, 504}


def test_any_body_is_read_as_python_reads_it_or_refused(serve_app):
    models = serve_app().app.state.service.names
    for seed in range(PARSER_CASES):
        check_body(*request_case(seed), models, seed)


def test_the_generator_makes_both_good_and_bad_requests(serve_app):
    models = serve_app().app.state.service.names
    outcomes = [parsed(*request_case(seed), models)[1] for seed in range(500)]
    refused = sum(isinstance(outcome, ApiError) for outcome in outcomes)
    assert 100 < refused < 400


@pytest.mark.parametrize("http", ["protocol", "asgi"])
def test_pipelined_requests_of_any_kind_are_each_answered(start_server, bundle_path, model, http):
    with start_server(bundle_path, "--workers", 1, "--http", http) as server:
        for start in range(0, HTTP_CASES // 2, PIPELINED):
            ask(server.port, range(start, start + PIPELINED))
        check_alive(server, model)


def ask(port, seeds):
    wire = Wire(port)
    try:
        cases = [request_case(seed) for seed in seeds]
        for headers, body in cases:
            lines = [f"{name.decode()}: {value.decode()}" for name, value in headers.items()]
            wire.send(request(body, *lines))
        for seed in seeds:
            answer = wire.answer()
            assert answer.status in STATUSES, (seed, answer)
            json.loads(answer.body)
    finally:
        wire.close()


def check_alive(server, model):
    row = model.rows(1, seed=5)
    answer = httpx.post(f"{server.url}/predict", json={"inputs": row, "top_k": 1}).json()
    best = model.scores(np.array(row)).max()
    assert answer["predictions"][0]["scores"][0] == pytest.approx(best, abs=1e-5)
    metrics = httpx.get(f"{server.url}/metrics").text
    assert 'reason="internal_error"' not in metrics
    assert "labelwright_in_flight_requests 0.0" in metrics
    server.process.terminate()
    _, log = server.process.communicate(timeout=30)
    assert "Traceback" not in log


@pytest.mark.parametrize("http", ["protocol", "asgi"])
def test_garbage_hurts_nobody_but_its_own_connection(start_server, bundle_path, model, http):
    with start_server(bundle_path, "--workers", 1, "--http", http) as server:
        for seed in range(HTTP_CASES // 20):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as one:
                try:
                    one.sendall(garbage_case(seed))
                    one.shutdown(socket.SHUT_WR)
                    while one.recv(2**16):
                        pass
                except ConnectionError:
                    pass
        check_alive(server, model)


def test_a_thousand_idle_connections_leave_room_for_a_request(start_server, bundle_path, model):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        with start_server(bundle_path, "--workers", 1) as server, ExitStack() as idle:
            for number in range(1000):
                one = socket.create_connection(("127.0.0.1", server.port), timeout=10)
                idle.enter_context(one)
                if number % 2:
                    one.sendall(b"POST /predict HTTP/1.1\r\nhost: ")
            check_alive(server, model)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_server_without_file_descriptors_recovers(start_server, bundle_path, model):
    with start_server(bundle_path, "--workers", 1) as server:
        limit = str(len(subprocess.check_output(["ls", f"/proc/{server.process.pid}/fd"]).split()))
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (int(limit) + 20,) * 2)
        with ExitStack() as many:
            for _ in range(60):
                address = ("127.0.0.1", server.port)
                many.enter_context(socket.create_connection(address, timeout=10))
            time.sleep(0.3)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                httpx.get(f"{server.url}/healthz", timeout=5)
                break
            except httpx.HTTPError:
                time.sleep(0.2)
        row = model.rows(1, seed=5)
        answer = httpx.post(f"{server.url}/predict", json={"inputs": row})
        assert answer.status_code == 200


# The batcher against what it must do: each job is answered once, with its own rows.


class Echo:
    """Scores each row by its own number; fails, where it should, for whole batches."""

    reads_text = False

    def __init__(self, rng, *, is_fast):
        self.seconds_per_batch = 1e-6 if is_fast else 1.0
        self._rng = rng

    def run(self, rows, k, *, with_scores=False):
        if self._rng.random() < 0.1:
            raise RuntimeError("the model failed")
        top = np.repeat(rows.features[:, :1], k, axis=1)
        scores = rows.features if with_scores else None
        return Scored(top, np.zeros(top.shape, np.int64), scores)


async def scenario(seed):
    rng = random.Random(seed)  # noqa: S311
    now = [0.0]
    batcher = MicroBatcher(
        Echo(rng, is_fast=rng.random() < 0.5),
        max_batch_rows=rng.choice([1, 4, 8]),
        max_queue_rows=rng.choice([10, 1000]),
        max_queue_bytes=10**6,
        on_batch=lambda rows, seconds: None,
        clock=lambda: now[0],
    )
    jobs, answers = [], {}
    for number in range(rng.randint(1, 30)):
        rows = rng.choice([1, 1, 2, 3, 9])
        features = np.full((rows, 2), number, np.float32) + np.arange(rows)[:, None] / 16
        outcomes = answers[number] = []
        deadline = rng.choice([np.inf, np.inf, now[0] + 0.5])
        k = rng.randint(1, 3)
        job = Job(DenseRows(features), k, rng.random() < 0.3, outcomes.append, deadline)
        try:
            batcher.submit(job)
        except ApiError:
            assert not outcomes
            continue
        jobs.append((number, job, features, deadline))
        job.is_abandoned = rng.random() < 0.1
        if rng.random() < 0.5:
            now[0] += rng.choice([0.1, 1.0])
            await asyncio.sleep(0)
    for _ in range(2000):
        if all(answers[number] for number, *_ in jobs):
            break
        await asyncio.sleep(0.001)
    await asyncio.sleep(0)
    batcher.close()
    for number, job, features, deadline in jobs:
        (outcome,) = answers[number]
        check_outcome(outcome, job, features, deadline)
    assert (batcher.queued_rows, batcher.queued_bytes) == (0, 0)


def check_outcome(outcome, job, features, deadline):
    if isinstance(outcome, Finished):
        best = outcome.answer.top_scores[:, : job.k]
        assert np.array_equal(best, np.repeat(features[:, :1], job.k, axis=1))
        if job.with_scores:
            assert np.array_equal(outcome.answer.scores, features)
    elif isinstance(outcome, DeadlinePassedError):
        assert deadline < np.inf
    elif isinstance(outcome, ClientGoneError):
        assert job.is_abandoned
    else:
        assert str(outcome) == "the model failed"


def test_each_job_is_answered_once_with_its_own_rows():
    for seed in range(150 * SCALE):
        asyncio.run(scenario(seed))
