"""How long a newcomer needs: the README's commands in an empty folder, timed step by step.

    python -m benchmarks.newcomer

Clones this repository, lets `make` install into a `.venv` of the clone, then runs the commands of
the README's section "Your own data" on its CSV, up to a prediction by the client. Commands are read
from the README, so that what is timed is what is written there. Nothing is left behind.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTALL = "make .venv/.run"  # what `make demo` does before it trains
ADDRESS = "http://127.0.0.1:8000"
BLOCK = re.compile(r"<!-- (file|run|serve)[^\n]* -->\n```\w+\n(.*?)```", re.S)


def own_data_steps(readme: str) -> list[tuple[str, str]]:
    """What the section does, in its order: ("file", content), ("run", command), ("serve", ...)."""
    section = readme.partition("## Your own data")[2].partition("\n## ")[0]
    steps = []
    for word, text in BLOCK.findall(section):
        lines = [text] if word == "file" else text.strip().splitlines()
        steps += [(word, line.partition("  #")[0].rstrip(" ")) for line in lines]
    return steps


@contextmanager
def timed(step: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    print(f"{time.perf_counter() - started:8.1f} s  {step}", flush=True)


def run(command: str, folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command}\n{done.stdout}\n{done.stderr}")


def follow(clone: Path, environment: dict[str, str]) -> None:
    """Run the section in the clone; the server is stopped in the end."""
    server, address = None, ADDRESS
    try:
        for word, text in own_data_steps((clone / "README.md").read_text("utf-8")):
            if word == "file":
                (clone / "my.csv").write_text(text, "utf-8")
            elif word == "run":
                with timed(text):
                    run(text.replace(ADDRESS, address), clone, environment)
            else:
                with timed(f"{text} (until it is ready)"):
                    server = subprocess.Popen(
                        ["bash", "-c", f"exec {text} --port 0"], cwd=clone, env=environment,
                        stdout=subprocess.PIPE, text=True,
                    )  # fmt: skip
                    address = server.stdout.readline().split()[-1]
    finally:
        if server is not None:
            server.terminate()
            server.communicate(timeout=30)


def main() -> None:
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "LABELWRIGHT_DATA")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    with tempfile.TemporaryDirectory() as home, timed("altogether"):
        clone = Path(home) / "labelwright"
        with timed("git clone"):
            run(f"git clone --quiet {ROOT} {clone}", Path(home), environment)
        with timed(f"{INSTALL} (install, as make demo does)"):
            run(INSTALL, clone, environment)
        environment["PATH"] = f"{clone / '.venv/bin'}{os.pathsep}{environment['PATH']}"
        follow(clone, environment)


if __name__ == "__main__":
    main()
