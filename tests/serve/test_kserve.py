"""The Open Inference Protocol with KServe's own client.

With its dependencies it takes half a gigabyte, so it has an environment of its own, kept beside
those of the benchmarks' servers. `make fuzz` makes it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.serving.servers import CACHE, install
from serve.settings import Settings
from tests.serve.live import live

FOLDER = CACHE / "kserve"
SCRIPT = Path(__file__).with_name("kserve_client.py")


@pytest.fixture(scope="module")
def python():
    if not (FOLDER / "installed").exists() and "LABELWRIGHT_INSTALL" not in os.environ:
        pytest.skip("KServe's client is not installed: run make fuzz, which does so")
    try:
        return install(("kserve>=0.15",), FOLDER, sys.executable)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"KServe's client cannot be installed: {error}")


def asked(python, url, rows):
    """What KServe's client gets of a server."""
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, SCRIPT, url, json.dumps(rows)]
    done = subprocess.run(command, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_kserve_s_client_is_understood(python, serve_app, bundle_path, other_path, model):
    app = serve_app(bundle_path, other_path).app
    rows = model.rows(2)
    # Not a parameter, as several processes would install it at once.
    for http in ("protocol", "asgi"):
        with live(app, Settings(bundles=(bundle_path, other_path), http=http)) as server:
            found = asked(python, server.url, rows)
        assert found["live"] is found["ready"] is found["model"] is True
        assert len(found["answers"]) == 4
        for answer in found["answers"]:
            # It does not read the version of an answer.
            assert (answer["id"], answer["model_name"]) == ("mine", "tiny")
            assert_right(answer, model, rows)
        status, message = found["error of nobody"]
        assert status == 404
        assert "no model 'nobody' is loaded" in message
        status, message = found["error of tiny"]
        assert status == 422
        assert "row 0 must have 6 numbers, got 2" in message


def assert_right(answer, model, rows):
    for number, row in enumerate(rows):
        names, scores = zip(*model.expected(row, 3), strict=True)
        assert answer["labels"][number] == list(names)
        assert answer["top_scores"][number] == pytest.approx(scores, abs=1e-6)
        assert [model.names[label] for label in answer["top_labels"][number]] == list(names)
    assert np.array(answer["scores"]) == pytest.approx(model.scores(rows), abs=1e-6)
