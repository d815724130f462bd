"""Scoring on a Ray cluster of two nodes on this machine, one of which dies in the middle."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from serve.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's own
DEADLINE_SECONDS = 200
CHUNKS = 500
ROWS = int(os.environ.get("LABELWRIGHT_SCORED", CHUNKS))
"""A million in `make fuzz`."""


def is_scoring(node) -> bool:
    """Whether a worker of that node has a chunk just now; Ray names processes by their tasks."""
    raylet = node.all_processes["raylet"][0].process.pid
    try:
        children = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
        lines = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    except FileNotFoundError:  # one has just ended
        return False
    return any(line.startswith(b"ray::score_chunk") for line in lines)


@pytest.mark.timeout(600)
def test_every_row_is_scored_once_though_a_node_dies(ray_cluster, bundle_path, model, tmp_path):
    node = ray_cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
    rows, out = model.rows(ROWS, seed=9), tmp_path / "out"
    np.save(tmp_path / "rows.npy", np.array(rows, dtype=np.float32))
    there_when_killed = []

    def kill_when_both_work():
        """Kill the second node while it scores a chunk, once some are done."""
        began = time.monotonic()
        while time.monotonic() - began < DEADLINE_SECONDS:
            there = len(list(out.glob("chunks/[!.]*")))
            if there >= 20 and is_scoring(node):
                ray_cluster.remove_node(node, allow_graceful=False)
                there_when_killed.append(there)
                return
            time.sleep(0.002)

    killer = threading.Thread(target=kill_when_both_work)
    killer.start()
    words = ["--input", tmp_path / "rows.npy", "--output", out, "--chunk-rows", ROWS // CHUNKS]
    words += ["--engine", "ray", "--address", ray_cluster.address]
    assert main(["score", str(bundle_path), *map(str, words)]) == 0
    killer.join()
    assert there_when_killed[0] < CHUNKS
    found = [
        row for path in sorted(out.glob("chunks/*")) for row in pq.read_table(path).to_pylist()
    ]
    assert [one["row"] for one in found] == list(range(ROWS))
    # Labels whose scores differ by less than float32 can tell may come in either order.
    column_of = {name: column for column, name in enumerate(model.names)}
    columns = [[column_of[label] for label in one["labels"]] for one in found]
    scores, true = np.array([one["scores"] for one in found]), model.scores(rows)
    best = -np.sort(-true, axis=1)[:, : scores.shape[1]]
    np.testing.assert_allclose(scores, best, rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        scores, np.take_along_axis(true, np.array(columns), 1), rtol=0, atol=1e-6
    )
    # Nothing is left to do, and a bad row is told by the driver.
    assert main(["score", str(bundle_path), *map(str, words)]) == 0
    np.save(tmp_path / "bad.npy", np.full((3, model.width), np.nan, dtype=np.float32))
    words = ["--input", tmp_path / "bad.npy", "--output", tmp_path / "bad", *words[-4:]]
    assert main(["score", str(bundle_path), *map(str, words)]) == 2
