"""Prometheus metrics of one server, bound once per model so that counting costs little."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    generate_latest,
)

from export.manifest import Manifest

SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01),
    *(0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096)
BY_MODEL = ("model", "method")


@dataclass(frozen=True, slots=True)
class ModelMeters:
    """The metrics of one model."""

    request_seconds: Histogram
    queue_seconds: Histogram
    inference_seconds: Histogram
    batch_rows: Histogram
    rows: Counter
    answered: Counter

    def batch(self, rows: int, seconds: float) -> None:
        """Count one call of the model."""
        self.batch_rows.observe(rows)
        self.inference_seconds.observe(seconds)
        self.rows.inc(rows)

    def answer(self, request_seconds: float, queue_seconds: float) -> None:
        """Count one request that was answered with predictions."""
        self.request_seconds.observe(request_seconds)
        self.queue_seconds.observe(queue_seconds)
        self.answered.inc()


def peak_memory_bytes() -> int:
    """Most that the process had in memory, mapped files that were read included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


class Telemetry:
    """All metrics of one application, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._request_seconds = self._histogram("request", "from a request's headers to its answer")
        self._queue_seconds = self._histogram("queue", "that a request waited for a batch")
        self._inference_seconds = self._histogram("inference", "that one batch took in the model")
        self._batch_rows = Histogram(
            "labelwright_batch_rows",
            "Rows in one call of the model.",
            BY_MODEL,
            buckets=ROWS,
            registry=self.registry,
        )
        self._rows = self._counter("rows", "Rows scored.", BY_MODEL)
        self._requests = self._counter(
            "requests", "Prediction requests by HTTP status.", (*BY_MODEL, "status")
        )
        self._rejections = self._counter(
            "rejections", "Prediction requests without predictions, by reason.", ("reason",)
        )
        self._in_flight = self._gauge("in_flight_requests", "Prediction requests being answered.")
        self._queued = self._gauge("queued_rows", "Rows that wait for a model.", BY_MODEL)
        self._load_seconds = self._gauge(
            "load_seconds", "Seconds from a bundle's verified files to the loaded model.", BY_MODEL
        )
        self._gauge("peak_memory_bytes", "Most that the process had in memory.").set_function(
            peak_memory_bytes
        )
        self._info = Info(
            "labelwright_model", "The loaded models.", ("model",), registry=self.registry
        )

    def watch_in_flight(self, count: Callable[[], int]) -> None:
        """Read the number of requests in flight from its owner whenever metrics are scraped."""
        self._in_flight.set_function(count)

    def for_model(self, manifest: Manifest) -> ModelMeters:
        """Bind the metrics of one model, and announce it."""
        key = (manifest.name, manifest.method)
        about = {
            "version": manifest.version,
            "method": manifest.method,
            "task": manifest.task,
            "dataset": manifest.dataset,
        }
        self._info.labels(manifest.name).info(about)
        return ModelMeters(
            request_seconds=self._request_seconds.labels(*key),
            queue_seconds=self._queue_seconds.labels(*key),
            inference_seconds=self._inference_seconds.labels(*key),
            batch_rows=self._batch_rows.labels(*key),
            rows=self._rows.labels(*key),
            answered=self._requests.labels(*key, "200"),
        )

    def loaded(self, manifest: Manifest, seconds: float) -> None:
        """Tell how long a model took to load."""
        self._load_seconds.labels(manifest.name, manifest.method).set(seconds)

    def watch_queue(self, manifest: Manifest, queued_rows: Callable[[], int]) -> None:
        """Read the length of a model's queue from its owner whenever metrics are scraped."""
        self._queued.labels(manifest.name, manifest.method).set_function(queued_rows)

    def reject(self, manifest: Manifest | None, status: int, reason: str) -> None:
        """Count one request that got an error; without a manifest its model was not known yet."""
        key = (manifest.name, manifest.method) if manifest else ("", "")
        self._requests.labels(*key, str(status)).inc()
        self._rejections.labels(reason).inc()

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def _histogram(self, what: str, text: str) -> Histogram:
        return Histogram(
            f"labelwright_{what}_seconds",
            f"Seconds {text}.",
            BY_MODEL,
            buckets=SECONDS,
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"labelwright_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"labelwright_{name}", text, labels, registry=self.registry)
