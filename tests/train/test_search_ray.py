"""A search on a Ray cluster of two nodes on this machine, one of which dies in the middle."""

from __future__ import annotations

import json
import threading
import time

import pytest

from train.cli import main
from train.search.study import open_study

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's own
DEADLINE_SECONDS = 200
TRIALS = 8


@pytest.mark.timeout(400)
def test_trials_survive_the_death_of_a_node(ray_cluster, tmp_path):
    node = ray_cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
    killed = threading.Event()

    def kill_when_two_run():
        """Kill the second node once trials run on both."""
        began = time.monotonic()
        while time.monotonic() - began < DEADLINE_SECONDS:
            if len(list(tmp_path.glob("trials/*/history.jsonl"))) >= 2:
                ray_cluster.remove_node(node, allow_graceful=False)
                killed.set()
                return
            time.sleep(0.05)

    killer = threading.Thread(target=kill_when_two_run)
    killer.start()
    words = ["ce", "--dataset", "demo", "--epochs", "40", "--patience", "40", "--hidden", "20"]
    words += ["--vary", "lr", "--trials", str(TRIALS), "--out", str(tmp_path)]
    assert main(["search", *words, "--engine", "ray", "--address", ray_cluster.address]) == 0
    killer.join()
    assert killed.is_set()
    trials = open_study(tmp_path).trials
    assert [trial.number for trial in trials] == list(range(TRIALS))
    assert {trial.state.name for trial in trials} <= {"COMPLETE", "PRUNED"}
    for trial in trials:
        folder = tmp_path / "trials" / f"{trial.number:04d}"
        lines = (folder / "history.jsonl").read_text("utf-8").splitlines()
        assert [json.loads(line)["epoch"] for line in lines] == list(range(1, len(lines) + 1))
        if trial.state.name == "COMPLETE":
            scores = [json.loads(line)["validation_example_f1"] for line in lines]
            assert trial.value == max(scores)
    assert (tmp_path / "best.toml").is_file()
