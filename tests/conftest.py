"""For all tests: where the real data sets are, how fast examples run, a cluster of Ray."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
from hypothesis import settings

BESIDE_THE_CHECKOUT = Path(__file__).parents[2] / "shared" / "data"

if "LABELWRIGHT_DATA" not in os.environ and BESIDE_THE_CHECKOUT.is_dir():
    os.environ["LABELWRIGHT_DATA"] = str(BESIDE_THE_CHECKOUT)

# A report takes seconds, and hundreds of runs are trained here; its own tests ask for it.
os.environ["LABELWRIGHT_REPORT"] = "off"

settings.register_profile("labelwright", deadline=None)
settings.load_profile("labelwright")


@pytest.fixture
def ray_cluster(monkeypatch):
    """A head and room for other nodes, on 127.0.0.1 alone."""
    # Else Ray puts the address of the network card in place of 127.0.0.1.
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray = pytest.importorskip("ray", reason="the extra ray is not installed")
        from ray._private import ray_constants
        from ray.cluster_utils import Cluster

        monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", False)
        cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "node_ip_address": "127.0.0.1"},
        )
    yield cluster
    ray.shutdown()
    cluster.shutdown()
