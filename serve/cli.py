"""`python -m serve BUNDLE...`: flags to settings, one line when ready, mistakes in one sentence."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import tyro

from serve.settings import Settings
from train.errors import EXIT_OK, needs_extra, run_command

EXAMPLE = """\
`python -m serve bench BUNDLE...` compares the speed of bundles instead.
example:
  python -m serve runs/demo/seal-0/model.bundle --port 8000
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit code is 0 then, and 2 if it could not start."""
    return run_command(_command, argv)


def _command(argv: Sequence[str]) -> int:
    with needs_extra("serve", "serving"):
        from serve.bench import bench_command  # noqa: PLC0415
        from serve.workers import serve  # noqa: PLC0415
    if argv and argv[0] == "bench":
        return bench_command(argv[1:])
    settings = _parse(argv)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    serve(settings, lambda line: print(line, flush=True))
    return EXIT_OK


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
