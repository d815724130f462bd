"""`python -m serve BUNDLE...`: flags to settings, one line when ready, mistakes in one sentence."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import tyro

from serve.door import NewKey
from serve.settings import Settings
from train.errors import EXIT_OK, needs_extra, run_command

EXAMPLE = """\
`python -m serve bench BUNDLE...` compares the speed of bundles instead,
`python -m serve score BUNDLE --input FILE... --output DIR` scores whole files,
`python -m serve key NAME` makes a key for --api-keys or --admin-keys: itself, and its line there.
example:
  python -m serve runs/demo/seal-0/model.bundle --port 8000
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit code is 0 then, and 2 if it could not start."""
    return run_command(_command, argv)


def _command(argv: Sequence[str]) -> int:
    with _ended_by_sigterm():
        return _run(argv)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Take SIGTERM from the first moment on: process 1 of a container ignores it otherwise.

    Loading takes a while, and nothing is accepted yet that would have to be answered. Whoever
    accepts requests sets a handler of its own.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: os._exit(EXIT_OK))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(argv: Sequence[str]) -> int:
    if argv and argv[0] == "score":
        return _score(argv[1:])
    with needs_extra("serve", "serving"):
        from serve.bench import bench_command  # noqa: PLC0415
        from serve.logs import start_log  # noqa: PLC0415
        from serve.workers import serve  # noqa: PLC0415
    if argv and argv[0] == "bench":
        return bench_command(argv[1:])
    if argv and argv[0] == "key":
        print("\n".join(_parse_new_key(argv[1:]).lines()))
        return EXIT_OK
    settings = _parse(argv)
    start_log(settings.log_format)
    serve(settings, lambda line: print(line, flush=True))
    return EXIT_OK


def _score(argv: Sequence[str]) -> int:
    with needs_extra("score", "scoring files"):
        from serve.score.command import score_command  # noqa: PLC0415 - may be missing
    return score_command(argv)


def _parse_new_key(argv: Sequence[str]) -> NewKey:
    return tyro.cli(
        tyro.conf.PositionalRequiredArgs[NewKey], prog="python -m serve key", args=list(argv)
    )


def _parse(argv: Sequence[str]) -> Settings:
    try:
        return tyro.cli(
            Settings,
            prog="python -m serve",
            args=list(argv),
        )
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            print(EXAMPLE, end="")
        raise
