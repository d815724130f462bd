"""The server does what its OpenAPI document says: schemathesis draws the requests."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest

from tests.serve.fuzzing import SCALE

EXAMPLES = 15 * SCALE
# 503 is for a server that stops, 504 for a request whose own deadline has passed.
CONFIG = """\
[parameters]
"path.name" = "other"
"path.version" = "0123456789ab"

[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 503, 504]

# Whether a row is good depends on the model: what the document allows may be refused with 422.
[checks.positive_data_acceptance]
enabled = false

# The model that all others are asked about stays.
[[operations]]
include-path-regex = "/v2/repository/models/{name}/(un)?load"
parameters = { "path.name" = "tiny" }
"""


@pytest.mark.slow
@pytest.mark.parametrize("http", ["protocol", "asgi"])
def test_every_answer_is_as_the_document_says(
    start_server, bundle_path, other_path, tmp_path, http
):
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    plan = tmp_path / "models.toml"
    plan.write_text('default = "other"\n')
    flags = ["--workers", 1, "--http", http, "--models", plan]
    with start_server(bundle_path, other_path, *flags) as server:
        tool = [sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml"]
        options = ["--no-color", "--seed", "1", "--max-examples", str(EXAMPLES)]
        asked = subprocess.run(
            [*tool, "run", f"{server.url}/openapi.json", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert asked.returncode == 0, asked.stdout[-8000:] + asked.stderr[-2000:]
        metrics = httpx.get(f"{server.url}/metrics").text
        assert 'reason="internal_error"' not in metrics
        # The document's own examples fit this model, so that good answers were seen, too.
        assert answered(metrics) >= 3
        server.process.terminate()
        _, log = server.process.communicate(timeout=30)
    assert "Traceback" not in log


def answered(metrics):
    start = 'labelwright_requests_total{method="seal",model="other",status="200"} '
    (line,) = [line for line in metrics.splitlines() if line.startswith(start)]
    return float(line.removeprefix(start))
