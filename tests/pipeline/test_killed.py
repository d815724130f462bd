"""kill -9 at any moment, then --resume: the weights of the run that nobody killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from train import methods

POINTS = int(os.environ.get("LABELWRIGHT_KILLS", "4"))
"""Moments for each method; `make fuzz` takes 20."""
SMALL = {
    "abalone": ["--queue-size", "20", "--linear-epochs", "2"],
    "cgmvae": ["--embedding", "8", "--latent", "4", "--decoder-hidden", "16"],
    "lamp": ["--width", "8", "--inner-width", "8"],
    "mpvae": ["--latent", "4"],
    "sampled": ["--negatives", "4"],
    "seal": ["--loss-steps", "2", "--task-steps", "2", "--samples", "4"],
    "dvn": ["--inference-steps", "3"],
    "spen": ["--inference-steps", "3"],
    "nce": ["--inference-steps", "3"],
}
STEPPED = [name for name in methods.available() if hasattr(methods.load(name), "build")]


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 6)).astype(np.float32)
    y = (x @ rng.normal(size=(6, 5)) > 0.5).astype(np.uint8)
    np.savez(tmp_path / "small.npz", x=x, y=y)
    return "small.npz"


@pytest.mark.parametrize("method", STEPPED)
def test_a_killed_run_resumes_to_the_same_weights(method, data, tmp_path):
    program = Path(__file__).with_name("killing.py")
    done = subprocess.run(
        [sys.executable, program, data, str(POINTS), method, *SMALL.get(method, [])],
        cwd=tmp_path, capture_output=True, text=True, timeout=70 * POINTS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    killed = re.search(r"(\d+) of \d+ runs were killed", done.stdout)
    assert killed, done.stdout
    assert int(killed[1]) >= POINTS // 2, done.stdout
