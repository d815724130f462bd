"""The real command in a real process."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from serve.settings import Settings
from train.errors import ConfigError

ROOT = Path(__file__).parents[2]


def predict_bytes(model, count=1):
    return json.dumps({"inputs": model.rows(count), "top_k": 2}).encode()


def test_it_says_when_it_is_ready_and_answers(start_server, bundle_path, other_path, model):
    with start_server(bundle_path, other_path) as server:
        assert re.fullmatch(r"serving tiny, other on http://127\.0\.0\.1:\d+", server.line)
        row = model.rows(1)[0]
        body = {"inputs": [row], "model": "tiny", "top_k": 2}
        answer = httpx.post(f"{server.url}/predict", json=body)
        expected = [name for name, _ in model.expected(row, 2)]
        assert answer.json()["predictions"][0]["labels"] == expected
        assert httpx.get(f"{server.url}/readyz").status_code == 200
        assert "labelwright_rows_total" in httpx.get(f"{server.url}/metrics").text
        server.process.send_signal(signal.SIGTERM)
        out, err = server.process.communicate(timeout=30)
        assert (server.process.returncode, out, err) == (0, "", "")


def test_interrupt_stops_it_as_politely(start_server, bundle_path):
    with start_server(bundle_path) as server:
        server.process.send_signal(signal.SIGINT)
        out, err = server.process.communicate(timeout=30)
        assert (server.process.returncode, out, err) == (0, "", "")


def metric(url, name):
    text = httpx.get(f"{url}/metrics").text
    return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1])


def half_a_request(server, model):
    """A connection whose request has arrived up to the middle of its body."""
    body = predict_bytes(model)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.putrequest("POST", "/predict")
    connection.putheader("content-length", str(len(body)))
    connection.endheaders(body[:10])
    while metric(server.url, "labelwright_in_flight_requests") != 1:
        pass
    return connection, body[10:]


def test_sigterm_finishes_what_was_accepted_and_refuses_the_rest(start_server, bundle_path, model):
    with start_server(bundle_path, "--grace", 25) as server:
        connection, rest = half_a_request(server, model)
        server.process.send_signal(signal.SIGTERM)
        while httpx.get(f"{server.url}/readyz").status_code == 200:
            pass
        assert httpx.get(f"{server.url}/readyz").status_code == 503
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        refused = httpx.post(f"{server.url}/predict", content=predict_bytes(model))
        assert refused.status_code == 503
        assert refused.json()["error"]["type"] == "draining"
        connection.send(rest)
        answer = connection.getresponse()
        assert answer.status == 200
        assert len(json.loads(answer.read())["predictions"]) == 1
        connection.close()
        assert server.process.wait(timeout=20) == 0


def test_sigterm_waits_no_longer_than_the_grace(start_server, bundle_path, model):
    with start_server(bundle_path, "--grace", 0.5) as server:
        connection, _ = half_a_request(server, model)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=20) == 0
        connection.close()


def test_a_second_signal_does_not_wait(start_server, bundle_path, model):
    with start_server(bundle_path, "--grace", 1000) as server:
        connection, _ = half_a_request(server, model)
        server.process.send_signal(signal.SIGTERM)
        while httpx.get(f"{server.url}/readyz").status_code == 200:
            pass
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=20) == 0
        connection.close()


def send_until_refused(port, body, warm):
    """The statuses one client got; it counts as warm after some answers."""
    statuses = []
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        while statuses[-1:] in ([], [200]):
            try:
                connection.request("POST", "/predict", body)
                answer = connection.getresponse()
            except (ConnectionError, http.client.BadStatusLine):
                break  # closed between two requests
            json.loads(answer.read())  # fails if the answer is cut short
            statuses.append(answer.status)
            if len(statuses) == 20:
                warm.wait(timeout=30)
    return statuses


def test_sigterm_under_load_leaves_no_answer_half_done(start_server, bundle_path, model):
    """Each client sends until it is refused; all it ever got are whole answers."""
    clients, body = 4, predict_bytes(model, 2)
    warm = threading.Barrier(clients + 1)
    with start_server(bundle_path) as server, ThreadPoolExecutor(clients) as pool:
        results = [pool.submit(send_until_refused, server.port, body, warm) for _ in range(clients)]
        warm.wait(timeout=30)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=30) == 0
        for statuses in (result.result(timeout=30) for result in results):
            assert statuses.count(200) >= 20
            assert set(statuses) <= {200, 503}


def test_a_port_in_use_is_one_sentence(run_server, bundle_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = run_server(bundle_path, "--port", port)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"error: cannot listen on 127.0.0.1:{port} (Address already in use): "
        "choose another --port (0 picks a free one)\n"
    )


def test_an_address_of_another_machine_is_one_sentence(run_server, bundle_path):
    done = run_server(bundle_path, "--host", "192.0.2.1", "--port", 0)
    assert done.returncode == 2
    assert "cannot listen on 192.0.2.1:0" in done.stderr
    assert done.stderr.endswith("choose another --host\n")


def test_a_changed_bundle_is_refused(run_server, bundle_path, tmp_path):
    copy = shutil.copytree(bundle_path, tmp_path / "copy.bundle")
    graph = bytearray((copy / "model.onnx").read_bytes())
    graph[len(graph) // 2] ^= 1
    (copy / "model.onnx").write_bytes(graph)
    done = run_server(copy, "--port", 0)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "was changed after its export" in done.stderr


def test_a_missing_bundle_is_refused(run_server, tmp_path):
    done = run_server(tmp_path / "none.bundle")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "does not exist" in done.stderr


def test_help_ends_with_an_example(run_server):
    done = run_server("--help")
    assert done.returncode == 0
    example = done.stdout.strip().splitlines()[-1].split()
    assert example[:3] == ["python", "-m", "serve"]
    for flag in ("--host", "--port", "--threads", "--max-body-mb", "--max-queue-rows"):
        assert flag in done.stdout
    assert run_server(*example[3:]).stderr.startswith(f"error: {example[3]} does not exist")


@pytest.mark.parametrize(
    "change",
    [
        {"bundles": ()},
        {"port": 65536},
        {"port": -1},
        {"threads": 0},
        {"max_body_mb": 0},
        {"max_queue_rows": 0},
        {"max_batch_rows": 0},
        {"grace": 0.0},
        {"grace": float("nan")},
    ],
)
def test_senseless_settings_are_refused(change):
    with pytest.raises(ConfigError, match=r"bundle|--"):
        Settings(**{"bundles": (Path("b"),), **change})


def without(modules, *arguments):
    """Run the command where these modules are not installed."""
    script = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {modules!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from serve.cli import main
sys.exit(main())
"""
    return [sys.executable, "-c", script, *map(str, arguments)]


def test_it_serves_where_the_training_libraries_do_not_exist(bundle_path):
    command = without(["torch", "scipy", "sklearn", "onnx"], bundle_path, "--port", 0)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert line.startswith("serving tiny on http://127.0.0.1:")
        assert process.wait(timeout=30) == 0


@pytest.mark.parametrize("module", ["onnxruntime", "fastapi"])
def test_a_missing_extra_is_one_sentence(module, bundle_path):
    done = subprocess.run(
        without([module], bundle_path),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f'error: serving needs {module}: pip install "labelwright[serve]"\n'


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_ends_process_1_while_it_loads(bundle_path, workers, tmp_path):
    """Process 1 of a container gets no signal that it does not handle itself."""
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*unshare, "true"], check=False).returncode
    ):
        pytest.skip("processes of their own numbering cannot be made here")
    mark = tmp_path / "loading"
    script = f"""
import sys, time
from pathlib import Path
from serve import cli, library
def load(*_):
    Path({str(mark)!r}).touch()
    time.sleep(60)
library.Source.open = load
sys.exit(cli.main())
"""
    command = [*unshare, sys.executable, "-c", script, bundle_path, "--port", 0]
    command += ["--workers", workers]
    with subprocess.Popen([str(part) for part in command], cwd=ROOT) as process:
        while not mark.exists():
            assert process.poll() is None
            time.sleep(0.05)
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGTERM)
        assert process.wait(timeout=30) == 0
