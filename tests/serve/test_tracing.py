"""Traces, as a collector of OpenTelemetry gets them; nothing of it without one."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from serve.tracing import tracing_of
from tests.serve.conftest import environment
from train.errors import UserError

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PRIVATE = "private words"


class Collector:
    """Keeps what is sent to it."""

    def __init__(self):
        self.bodies, self.spans, self.services = [], [], set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.take(self.path, body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def take(self, path, body):
        assert path == "/v1/traces"
        self.bodies.append(body)
        for batch in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services.add(values(batch.resource.attributes)["service.name"])
            for scope in batch.scope_spans:
                self.spans += scope.spans

    def wait_for(self, count):
        for _ in range(3000):
            if len(self.spans) >= count:
                return self.spans
            time.sleep(0.01)
        raise AssertionError(f"{len(self.spans)} of {count} spans came")


def values(attributes):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@pytest.fixture
def collector(monkeypatch):
    running = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    yield running
    running.server.shutdown()
    running.server.server_close()


@pytest.mark.parametrize("http", ["protocol", "asgi"])
def test_a_request_is_a_span_of_the_caller_s_trace(
    start_server, bundle_path, model, collector, http
):
    traced = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
    with start_server(bundle_path, "--workers", 1, "--http", http) as server:
        with httpx.Client(base_url=server.url, headers=traced) as web:
            assert web.post("/predict", json={"inputs": model.rows(3)}).status_code == 200
            assert web.post("/predict", json={"inputs": [[PRIVATE]]}).status_code == 422
            assert web.get("/models/tiny").status_code == 200
            assert web.get(f"/{PRIVATE}").status_code == 404
            one = {"inputs": model.rows(1)}
            assert web.post("/compare", json=one).json()["answers"][0]["status"] == 200
        spans = collector.wait_for(6)
    assert collector.services == {"labelwright"}
    assert {(span.trace_id.hex(), span.parent_span_id.hex()) for span in spans} == {(TRACE, PARENT)}
    names = [
        *("POST /predict", "POST /predict", "POST /predict"),
        *("GET /models/{name}", "GET unknown", "POST /compare"),
    ]
    assert Counter(span.name for span in spans) == Counter(names)
    good, bad, *_ = [(span, values(span.attributes)) for span in spans]
    span, about = good
    assert about["labelwright.rows"] == 3
    assert (about["labelwright.model"], about["labelwright.request_id"]) == ("tiny", "mine")
    assert about["http.response.status_code"] == 200
    milliseconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
    assert 0 < about["labelwright.inference_ms"] <= milliseconds
    assert 0 <= about["labelwright.queue_ms"] <= milliseconds
    assert (bad[1]["http.response.status_code"], bad[1]["error.type"]) == (422, "invalid_input")
    sent = b"".join(collector.bodies)
    assert PRIVATE.encode() not in sent
    assert model.names[0].encode() not in sent


def test_all_workers_trace_and_send_the_rest_when_they_stop(
    start_server, bundle_path, model, collector, monkeypatch
):
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
    with start_server(bundle_path, "--workers", 2) as server:
        for _ in range(20):  # each a connection of its own
            httpx.post(f"{server.url}/predict", json={"inputs": model.rows(1)})
        assert not collector.spans
        server.process.terminate()
        server.process.communicate(timeout=30)
        assert server.process.returncode == 0
    assert len(collector.wait_for(20)) == 20
    assert len(collector.bodies) == 2  # one of each worker
    assert collector.services == {"ours"}


def test_a_collector_that_is_gone_hurts_nobody(start_server, bundle_path, model, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    with start_server(bundle_path, "--workers", 1) as server:
        for _ in range(5):
            answer = httpx.post(f"{server.url}/predict", json={"inputs": model.rows(1)})
            assert answer.status_code == 200
        server.process.terminate()
        server.process.communicate(timeout=30)
        assert server.process.returncode == 0


def test_nothing_is_imported_unless_it_is_asked_for():
    code = (
        "import sys; from serve.app import openapi_text; openapi_text(); "
        "sys.exit('opentelemetry.sdk' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment(), check=False).returncode == 0
    )


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(UserError, match=r'needs opentelemetry: pip install "labelwright\[otel\]"'):
        tracing_of({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})


@pytest.mark.parametrize("more", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_the_standard_variables_also_turn_it_off(more):
    assert tracing_of({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", **more}) is None
    assert tracing_of({}) is None
