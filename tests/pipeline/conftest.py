"""The real commands in real processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path: Path) -> Command:
    """Run `python -m WORDS` in an empty folder; the exit code must be the expected one."""

    def run_words(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run_words


@pytest.fixture
def serving(tmp_path: Path) -> Callable[..., AbstractContextManager[str]]:
    """Serve bundles in a process of its own; yields the address."""

    @contextlib.contextmanager
    def serve(*bundles: str) -> Iterator[str]:
        command = [sys.executable, "-m", "serve", *bundles, "--port", "0"]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                yield server.stdout.readline().split()[-1]
            finally:
                server.terminate()
                assert server.wait(30) == 0

    return serve
