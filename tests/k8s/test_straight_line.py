"""The commands of the manifests, run for real: train, export, serve, scrape, stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def run(package, container, volume, *more):
    done = subprocess.run(
        command(package, container, volume, *more),
        cwd=volume, env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def command(package, container, volume, *more):
    """The container's command with its volume at another place."""
    words = [word.replace("/models/", f"{volume}/") for word in container["args"]]
    return [sys.executable, "-m", package, *words, *more]


@pytest.fixture(scope="module")
def parts(render):
    """The containers of the training job and of the base, by name."""
    (job,) = render("components/training")
    deployment = next(thing for thing in render("base") if thing["kind"] == "Deployment")
    pods = [thing["spec"]["template"]["spec"] for thing in (job, deployment)]
    every = [c for pod in pods for c in [*pod.get("initContainers", []), *pod["containers"]]]
    return {container["name"]: container for container in every}


@pytest.fixture(scope="module")
def address(parts, tmp_path_factory):
    """A server with the bundle that the job wrote; at the end it stops as Kubernetes asks it to."""
    volume = tmp_path_factory.mktemp("models")
    run("train", parts["train"], volume, "--epochs=1")
    run("export", parts["export"], volume)
    listening = command("serve", parts["server"], volume, "--host=127.0.0.1", "--port=0")
    with subprocess.Popen(listening, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().split()[-1]
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=60) == 0
        finally:
            server.kill()


@pytest.mark.slow
def test_what_the_job_writes_is_what_the_servers_read(parts, address):
    body = {"inputs": [{"3": 1.0}], "top_k": 1}
    assert httpx.post(f"{address}/predict", json=body).status_code == 200
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        path = parts["server"][probe]["httpGet"]["path"]
        assert httpx.get(f"{address}{path}").status_code == 200


@pytest.mark.slow
def test_prometheus_understands_the_metrics(address, promtool):
    promtool("check", "metrics", input=httpx.get(f"{address}/metrics").text)
