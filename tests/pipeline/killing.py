"""Kill a training run at random moments, resume it, and compare with a run that nobody killed.

A program of its own: it forks its runs, so that thousands of them do not each import torch.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

import train.cli
from train import training
from train.checkpoint import load_checkpoint

WORDS = ["--no-progress", "--epochs", "3", "--batch-size", "16", "--patience", "9"]


def begin(arguments: list[str]) -> int:
    """Start a run in a child of this process; returns its number."""
    child = os.fork()
    if child:
        return child
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = train.cli.main(arguments)
    except BaseException:  # noqa: BLE001 - a child must never return from the fork
        output.write(traceback.format_exc())
        code = 1
    if code:
        os.write(2, output.getvalue().encode())
    os._exit(code)


def finish(child: int) -> None:
    """Wait for a run that must succeed."""
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"a run ended with status {status}")


def kill(child: int, after: float) -> bool:
    """Kill a run after so many seconds; whether it was still going on."""
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def main(data: str, points: int, words: list[str]) -> None:
    """Kill runs at so many moments, spread over the time that a whole one takes."""
    torch.set_num_threads(1)
    rng = random.Random(0)  # noqa: S311 - moments, no secrets
    words = [words[0], "--dataset", data, *WORDS, *words[1:]]
    train.cli.main([*words, "--out", "first"])  # imports everything, once for all
    started = time.monotonic()
    finish(begin([*words, "--out", "whole"]))
    seconds = time.monotonic() - started
    whole = load_checkpoint(Path("whole/model.pt"))
    killed = 0
    for point in range(points):
        # Every second run saves its state after each step and not only after each epoch.
        training.SAVE_EVERY, training.SAVING_SHARE = (0.0, 0.999) if point % 2 else (300.0, 0.1)
        out = ["--out", f"cut-{point}"]
        after = rng.uniform(0, seconds)
        if kill(begin([*words, *out]), after):
            killed += 1
        else:  # on a machine that is less busy now, a whole run takes no longer than that
            seconds = after
        held = Path(f"cut-{point}").is_dir() and any(Path(f"cut-{point}").glob("[!.]*"))
        finish(begin([*words, *out, *["--resume"] * held]))
        cut = load_checkpoint(Path(f"cut-{point}/model.pt"))
        assert cut.weights.keys() == whole.weights.keys()
        for name, value in whole.weights.items():
            assert torch.equal(value, cut.weights[name]), f"{name} differs after kill {point}"
        assert (cut.epoch, cut.scores) == (whole.epoch, whole.scores)
    sys.stdout.write(f"{killed} of {points} runs were killed before their end\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
