"""Clocks that are set, and disks that are full: done to real servers."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest

from export.bundle import MODEL
from tests.serve.conftest import Running, command, environment
from tests.serve.live import Wire, request

DAY = 86_400
# Python's own clock; what is written in C asks the library below.
HOOK = """\
import os, time
def moved(clock, unit):
    def now():
        with open(os.environ["CLOCK"]) as file:
            return clock() + int(file.read() or 0) * unit
    return now
time.time, time.time_ns = moved(time.time, 1), moved(time.time_ns, 10**9)
"""
LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


class Clock:
    """The time of day of a process, which can be set while it runs."""

    def __init__(self, folder, kind):
        self.file = folder / "clock"
        self.kind = kind
        self.set(0)
        (folder / "sitecustomize.py").write_text(HOOK if kind == "python" else "")

    @property
    def variables(self):
        if self.kind == "python":
            return {"CLOCK": str(self.file)}
        return {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, seconds):
        draft = self.file.with_suffix(".new")
        draft.write_text(str(seconds) if self.kind == "python" else f"{seconds:+d}")
        draft.rename(self.file)


@pytest.fixture(params=["python", "library"])
def clock(request, tmp_path):
    if request.param == "library" and not LIBRARIES:
        pytest.skip("needs Debian's package libfaketime")
    return Clock(tmp_path, request.param)


@contextmanager
def started(*arguments, variables=None, path=""):
    whole = {**environment(), **(variables or {})}
    whole["PYTHONPATH"] = os.pathsep.join(filter(None, [str(path), whole["PYTHONPATH"]]))
    with subprocess.Popen(
        command(*arguments, "--port", 0), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=whole,
    ) as process:  # fmt: skip
        try:
            line = process.stdout.readline().rstrip("\n")
            process.stdout.readline()
            yield Running(process, line)
        finally:
            process.kill()
            process.communicate()


def test_a_clock_that_is_set_changes_nothing(bundle_path, model, tmp_path, clock):
    keys = tmp_path / "keys"
    lines = [f"{name}:{hashlib.sha256(name.encode()).hexdigest()}" for name in ("ann", "bob")]
    keys.write_text(f"{lines[0]}\n{lines[1]}:1\n")
    flags = ["--workers", 1, "--api-keys", keys, "--grace", 5]
    ann, bob = "authorization: Bearer ann", "authorization: Bearer bob"
    body = json.dumps({"inputs": model.rows(1)}).encode()
    run = started(bundle_path, *flags, variables=clock.variables, path=tmp_path)
    with ExitStack() as stack, run as server:
        wire = stack.enter_context(closing(Wire(server.port)))
        limited = stack.enter_context(closing(Wire(server.port)))
        limited.send(request(body, bob) * 4)
        before = [limited.answer() for _ in range(4)]
        for jump in (DAY, -DAY, 365 * DAY, 0):
            # Half a body before, half after: neither its time nor its deadline has passed.
            whole = request(body, ann, "x-timeout-ms: 30000")
            wire.send(whole[:-5])
            time.sleep(0.1)
            clock.set(jump)
            time.sleep(0.1)
            wire.send(whole[-5:])
            answer = wire.answer()
            assert answer.status == 200, (jump, answer)
            assert 0 <= answer.json()["latency_ms"]["total"] < 60_000
            # A day is not a day for a rate: it neither ends the wait nor makes it long.
            limited.send(request(body, bob) * 4)
            refused = [one for one in (limited.answer() for _ in range(4)) if one.status == 429]
            assert len(refused) >= 2, jump
            assert {one.headers["retry-after"] for one in refused} <= {"1", "2"}
        assert before[0].status == 200
        clock.set(-DAY)
        server.process.terminate()
        _, log = server.process.communicate(timeout=30)
        assert server.process.returncode == 0
        assert "Traceback" not in log


def test_a_clock_can_be_set_here(bundle_path, tmp_path, clock):
    """The test above sets what it says it sets: the date of answers follows."""
    with started(bundle_path, "--workers", 1, variables=clock.variables, path=tmp_path) as server:

        def year() -> str:
            return httpx.get(f"{server.url}/healthz").headers["date"].split()[3]

        before = year()
        clock.set(365 * DAY)
        deadline = time.monotonic() + 20
        while year() == before:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_server_needs_no_room_on_any_disk(write, model, tmp_path):
    repository = tmp_path / "repository"
    write(repository / "tiny" / "1", model)
    write(tmp_path / "later", model)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Of the server, too. The 32 bytes that workers share as a lock are a file to the kernel.
    resource.setrlimit(resource.RLIMIT_FSIZE, (32, hard))
    try:
        with started("--repository", repository, "--workers", 2) as server:
            assert predict(server, model).status_code == 200
            (tmp_path / "later").rename(repository / "tiny" / "2")
            wait(lambda: version(server) == "2")
            assert predict(server, model).status_code == 200
            server.process.terminate()
            _, log = server.process.communicate(timeout=30)
            assert server.process.returncode == 0
            assert "Traceback" not in log
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_copy_that_a_full_disk_cut_short_is_not_served(start_server, write, model, tmp_path):
    repository = tmp_path / "repository"
    write(repository / "tiny" / "1", model)
    with start_server("--repository", repository, "--workers", 1) as server:
        whole = write(tmp_path / "whole", model)
        graph = (whole / MODEL).read_bytes()
        (whole / MODEL).write_bytes(graph[: len(graph) // 2])
        whole.rename(repository / "tiny" / "2")
        problems = wait(lambda: httpx.get(f"{server.url}/readyz").json()["problems"])
        assert "bytes instead of" in problems["tiny"]
        assert version(server) == "1"
        assert predict(server, model).status_code == 200
        # Once there is room and the rest is there, it is served.
        (repository / "tiny" / "2" / MODEL).write_bytes(graph)
        wait(lambda: version(server) == "2")


def predict(server, model):
    return httpx.post(f"{server.url}/predict", json={"inputs": model.rows(1)})


def version(server):
    return httpx.get(f"{server.url}/models/tiny").json()["version"]


def wait(find):
    for _ in range(600):
        if found := find():
            return found
        time.sleep(0.05)
    raise AssertionError("it never came")
