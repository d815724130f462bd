"""Several worker processes behind one address, in the real command."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

LABELS = 'method="bce",model="tiny"'


def metric(server, name):
    text = httpx.get(f"{server.url}/metrics").text
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def workers_of(server):
    pid = server.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(condition):
    for _ in range(600):
        with suppress(httpx.TransportError):
            if condition():
                return
        time.sleep(0.05)
    raise AssertionError("it never became true")


def is_alive(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def predict(server, model, seed=0):
    """One request over a connection of its own, so that any worker may get it."""
    row = model.rows(1, seed=seed)[0]
    answer = httpx.post(f"{server.url}/predict", json={"inputs": [row], "top_k": 2})
    assert answer.status_code == 200, answer.text
    labels = answer.json()["predictions"][0]["labels"]
    assert labels == [name for name, _ in model.expected(row, 2)]


def test_one_scrape_shows_all_workers(start_server, bundle_path, model):
    with start_server(bundle_path, "--workers", 3) as server:
        assert len(workers_of(server)) == 3
        for count in range(1, 31):
            predict(server, model, seed=count)
            name = f'labelwright_requests_total{{{LABELS},status="200"}}'
            assert metric(server, name) == count
        assert metric(server, "labelwright_ready_workers") == 3
        assert metric(server, f"labelwright_request_seconds_count{{{LABELS}}}") == 30


def test_a_worker_that_is_killed_comes_back_and_nothing_counted_is_lost(
    start_server, bundle_path, model
):
    with start_server(bundle_path, "--workers", 2) as server:
        for seed in range(20):
            predict(server, model, seed)
        victim, other = workers_of(server)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(workers_of(server)) == 2 and victim not in workers_of(server))
        assert other in workers_of(server)
        wait_until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
        for seed in range(20):
            predict(server, model, seed)
        assert metric(server, f'labelwright_requests_total{{{LABELS},status="200"}}') == 40
        server.process.send_signal(signal.SIGTERM)
        _, err = server.process.communicate(timeout=30)
        assert server.process.returncode == 0
        assert err == "WARNING serve: worker 0 ended with -9: starting another\n"


def test_a_client_that_retries_does_not_notice_a_killed_worker(start_server, bundle_path, model):
    """Over kept connections; those of the dead worker break at most once each."""
    body = json.dumps({"inputs": model.rows(1), "top_k": 2}).encode()
    stop, warm = threading.Event(), threading.Barrier(5)

    def ask(url):
        answers = broken = 0
        with httpx.Client(base_url=url, timeout=30) as client:
            while not stop.is_set():
                try:
                    assert client.post("/predict", content=body).status_code == 200
                    answers += 1
                except httpx.TransportError:
                    broken += 1
                if answers == 30 and not broken:
                    warm.wait(60)
        return answers, broken

    with start_server(bundle_path, "--workers", 2) as server, ThreadPoolExecutor(4) as pool:
        results = [pool.submit(ask, server.url) for _ in range(4)]
        warm.wait(60)
        victim = workers_of(server)[1]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(workers_of(server)) == 2 and victim not in workers_of(server))
        stop.set()
        for answers, broken in (result.result(timeout=60) for result in results):
            assert answers >= 30
            assert broken <= 1


def test_models_are_loaded_and_unloaded_in_all_workers(start_server, bundle_path, model):
    with start_server(bundle_path, "--workers", 3) as server:
        for _ in range(2):
            unload = f"{server.url}/v2/repository/models/tiny/unload"
            assert httpx.post(unload, timeout=60).status_code == 200
            row = {"inputs": model.rows(1), "model": "tiny"}
            statuses = {
                httpx.post(f"{server.url}/predict", json=row).status_code for _ in range(20)
            }
            assert statuses == {404}
            load = f"{server.url}/v2/repository/models/tiny/load"
            assert httpx.post(load, timeout=60).status_code == 200
            for seed in range(20):
                predict(server, model, seed)


def test_a_bundle_that_cannot_be_served_is_one_sentence(run_server, bundle_path, tmp_path):
    copy = shutil.copytree(bundle_path, tmp_path / "copy.bundle")
    (copy / "model.onnx").write_bytes(b"")
    done = run_server(copy, "--port", 0, "--workers", 2)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "model.onnx" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_all_workers_end_with_the_command(start_server, bundle_path, number):
    with start_server(bundle_path, "--workers", 2) as server:
        workers = workers_of(server)
        server.process.send_signal(number)
        _, err = server.process.communicate(timeout=30)
        assert (server.process.returncode, err) == (0, "")
        assert not any(map(is_alive, workers))


def test_workers_end_when_their_parent_is_killed(start_server, bundle_path):
    with start_server(bundle_path, "--workers", 2) as server:
        workers = workers_of(server)
        server.process.kill()
        wait_until(lambda: not any(map(is_alive, workers)))


def test_two_servers_do_not_share_an_address(start_server, run_server, bundle_path):
    with start_server(bundle_path, "--workers", 2) as server:
        done = run_server(bundle_path, "--workers", 2, "--port", server.port)
    assert done.returncode == 2
    assert "Address already in use" in done.stderr
