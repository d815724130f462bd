"""OpenTelemetry traces: one span a request, where the standard OTEL_* variables name a collector.

Nothing of OpenTelemetry is imported otherwise. A span says what was asked of which model, how it
ended and where the time went; it has no rows, texts, labels or keys.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from train.errors import needs_extra

if TYPE_CHECKING:
    from serve.api import Latency
    from serve.exchange import Exchange

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
CARRIED = (b"traceparent", b"tracestate")
LAST_SECONDS = 2.0
"""In the end, for sending what has not been sent yet."""

Attributes = dict[str, str | int | float]


class Tracing:
    """Spans of one worker, sent in batches by a thread of OpenTelemetry's own."""

    def __init__(self) -> None:
        with needs_extra("otel", "tracing, which OTEL_EXPORTER_OTLP_ENDPOINT asks for,"):
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
                OTLPSpanExporter,
            )
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
            from opentelemetry.trace import SpanKind, StatusCode  # noqa: PLC0415
            from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
                TraceContextTextMapPropagator,
            )
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come before what is given here.
        resource = Resource({"service.name": "labelwright"}).merge(_told(Resource))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("labelwright.serve")
        self._extract = TraceContextTextMapPropagator().extract
        self._kind, self._failed = SpanKind.SERVER, StatusCode.ERROR

    def record(
        self,
        name: str,
        headers: Mapping[bytes, bytes],
        seconds: float,
        status: int,
        attributes: Attributes,
    ) -> None:
        """Add the span of a request that has just been answered.

        Args:
            name: Method and route.
            headers: Of the request; its trace is continued.
            seconds: That it took, on a clock that no one sets.
            status: Of the answer.
            attributes: What else is known.
        """
        carrier = {
            key.decode(): headers[key].decode("latin-1") for key in CARRIED if key in headers
        }
        end = time.time_ns()
        span = self._tracer.start_span(
            name,
            context=self._extract(carrier) if carrier else None,
            kind=self._kind,
            start_time=end - int(seconds * 1e9),
            attributes={**attributes, "http.response.status_code": status},
        )
        if status >= 500:
            span.set_status(self._failed)
        span.end(end)

    def answered(self, exchange: Exchange, status: int, latency: Latency) -> None:
        """Record a prediction, and where its time went."""
        times: Attributes = {
            "labelwright.queue_ms": latency.queue * 1e3,
            "labelwright.inference_ms": latency.inference * 1e3,
        }
        self._exchanged(exchange, status, times)

    def refused(self, exchange: Exchange, status: int, reason: str) -> None:
        """Record a request without a prediction."""
        self._exchanged(exchange, status, {"error.type": reason})

    def _exchanged(self, exchange: Exchange, status: int, more: Attributes) -> None:
        path = exchange.target.route.path
        attributes: Attributes = {
            **more,
            "http.request.method": "POST",
            "http.route": path,
            "labelwright.request_id": exchange.request_id,
        }
        if exchange.model is not None:
            manifest = exchange.model.manifest
            attributes["labelwright.model"] = manifest.name
            attributes["labelwright.version"] = manifest.version
        if exchange.call is not None:
            attributes["labelwright.rows"] = len(exchange.call.rows)
        seconds = time.perf_counter() - exchange.started
        self.record(f"POST {path}", exchange.headers, seconds, status, attributes)

    def close(self) -> None:
        """Send the rest, for a short while: a collector that is gone must not keep the server."""
        thread = threading.Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        thread.join(LAST_SECONDS)


def _told(resource: Any) -> Any:  # noqa: ANN401 - OpenTelemetry's, which may not be installed
    """What the variables say of this process; its name only if they give it one."""
    told = resource.create()
    name = told.attributes.get("service.name", "")
    if not str(name).startswith("unknown_service"):
        return told
    return resource({key: v for key, v in told.attributes.items() if key != "service.name"})


def tracing_of(environment: Mapping[str, str]) -> Tracing | None:
    """The traces of a server, if the environment asks for them.

    Raises:
        UserError: It does, and OpenTelemetry is not installed.
    """
    is_off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_off or environment.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return None
    return Tracing() if any(environment.get(name) for name in ENDPOINTS) else None
