"""Prometheus metrics of all workers, bound once per model so that counting costs little."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from export.manifest import Manifest
from serve.counters import Counters, Histogram, Key, Slab

SECONDS = (
    *(0.00005, 0.0001, 0.00015, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003),
    *(0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096)
BY_MODEL = ("model", "method")
HISTOGRAMS = {
    "request_seconds": ("Seconds from a request's headers to its answer.", SECONDS),
    "queue_seconds": ("Seconds that a request waited for a batch.", SECONDS),
    "inference_seconds": ("Seconds that one batch took in the model.", SECONDS),
    "batch_rows": ("Rows in one call of the model.", ROWS),
}
COUNTERS = {
    "rows": ("Rows scored.", BY_MODEL),
    "requests": ("Prediction requests by HTTP status.", (*BY_MODEL, "status")),
    "rejections": ("Prediction requests without predictions, by reason.", ("reason",)),
}
GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "in_flight_requests": ("Prediction requests being answered.", ()),
    "queued_rows": ("Rows that wait for a model.", BY_MODEL),
    "peak_memory_bytes": ("Most that the workers had in memory.", ()),
    "load_problems": ("Bundles and models.toml that could not be loaded.", ()),
    "ready_workers": ("Worker processes that take requests.", ()),
}
# Not added up: each worker loads the same models.
LOAD_SECONDS = "Seconds from a bundle's verified files to the loaded model."


@dataclass(frozen=True, slots=True)
class ModelMeters:
    """The metrics of one model."""

    request_seconds: Histogram
    queue_seconds: Histogram
    inference_seconds: Histogram
    batch_rows: Histogram
    rows: memoryview[float]
    answered: memoryview[float]

    def batch(self, rows: int, seconds: float) -> None:
        """Count one call of the model."""
        self.batch_rows.observe(rows)
        self.inference_seconds.observe(seconds)
        self.rows[0] += rows

    def answer(self, request_seconds: float, queue_seconds: float) -> None:
        """Count one request that was answered with predictions."""
        self.request_seconds.observe(request_seconds)
        self.queue_seconds.observe(queue_seconds)
        self.answered[0] += 1.0


@dataclass(frozen=True)
class ModelTotals:
    """What all workers counted of one model, for comparing models."""

    request_seconds: list[float] = field(default_factory=lambda: [0.0] * (len(SECONDS) + 2))
    inference_seconds: list[float] = field(default_factory=lambda: [0.0] * (len(SECONDS) + 2))
    rows: float = 0.0
    queued_rows: float = 0.0

    @property
    def requests(self) -> float:
        """Requests that were answered."""
        return sum(self.request_seconds[1:])

    @property
    def rows_per_second(self) -> float:
        """Rows scored in a second of the model's own time; 0 before the first."""
        return self.rows / self.inference_seconds[0] if self.inference_seconds[0] else 0.0

    def quantile(self, share: float) -> float | None:
        """Seconds within which this share of requests was answered; None before the first.

        Read off the histogram, so it is exact up to the width of a bucket.
        """
        wanted = share * self.requests
        if not wanted:
            return None
        below, bounds = 0.0, (0.0, *SECONDS, SECONDS[-1])
        for index, count in enumerate(self.request_seconds[1:]):
            if count and below + count >= wanted:
                low, high = bounds[index], bounds[index + 1]
                return low + (high - low) * (wanted - below) / count
            below += count
        return SECONDS[-1]


def peak_memory_bytes() -> int:
    """Most that the process had in memory, mapped files that were read included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


class Telemetry:
    """All metrics of one worker, and their sums over all workers in a registry of their own."""

    def __init__(self, counters: Counters | None = None, worker: int = 0) -> None:
        self._counters = counters or Counters()
        self._slab: Slab = self._counters.slabs[worker]
        self._gauges: dict[Key, Callable[[], float]] = {}
        self._manifests: dict[str, Manifest] = {}
        self._refusals: dict[object, tuple[memoryview[float], memoryview[float]]] = {}
        self.baseline: str | None = None
        """Name of the model whose speed is 1; None: the model that was loaded first."""
        self.watch(peak_memory_bytes, "peak_memory_bytes")
        self.registry = CollectorRegistry()
        self.registry.register(_SharedCollector(self))

    @property
    def workers(self) -> int:
        """Worker processes that there should be."""
        return self._counters.workers

    @property
    def ready_workers(self) -> int:
        """Worker processes that take requests, as far as they have told."""
        return int(self._gauge_total("ready_workers"))

    @property
    def in_flight(self) -> int:
        """Prediction requests that any worker is answering, as far as they have told."""
        return int(self._gauge_total("in_flight_requests"))

    def _gauge_total(self, name: str) -> float:
        self.refresh()
        return self._counters.totals().get((name,), [0.0])[0]

    def watch(self, value: Callable[[], float], name: str, *labels: str) -> None:
        """Read a gauge from its owner whenever metrics are scraped or refreshed."""
        self._gauges[(name, *labels)] = value

    def refresh(self) -> None:
        """Write this worker's gauges to where the other workers can read them."""
        for key, value in self._gauges.items():
            self._slab.series(key)[0] = float(value())

    def for_model(self, manifest: Manifest) -> ModelMeters:
        """Bind the metrics of one model, and announce it."""
        self._manifests[manifest.name] = manifest
        key = (manifest.name, manifest.method)
        return ModelMeters(
            request_seconds=self._histogram("request_seconds", key),
            queue_seconds=self._histogram("queue_seconds", key),
            inference_seconds=self._histogram("inference_seconds", key),
            batch_rows=self._histogram("batch_rows", key),
            rows=self._slab.series(("rows", *key)),
            answered=self._slab.series(("requests", *key, "200")),
        )

    def forget_model(self, manifest: Manifest) -> None:
        """No longer announce a model; what was counted of it stays."""
        self._manifests.pop(manifest.name, None)
        for gauge in ("queued_rows", "load_seconds"):
            key = (gauge, manifest.name, manifest.method)
            if self._gauges.pop(key, None):
                self._slab.series(key)[0] = 0.0

    def reject(self, manifest: Manifest | None, status: int, reason: str) -> None:
        """Count one request that got an error; without a manifest its model was not known yet."""
        key = (manifest.name, manifest.method) if manifest else ("", "")
        # Kept at hand: under overload most requests end here.
        counts = self._refusals.get((key, status, reason))
        if counts is None:
            requests = self._slab.series(("requests", *key, str(int(status))))
            counts = (requests, self._slab.series(("rejections", reason)))
            self._refusals[(key, status, reason)] = counts
        counts[0][0] += 1.0
        counts[1][0] += 1.0

    def model_totals(self) -> dict[str, ModelTotals]:
        """What all workers counted, by the names of the loaded models."""
        self.refresh()
        totals = self._counters.totals()
        return {name: _model_totals(totals, about) for name, about in self._manifests.items()}

    def speed_ratios(self) -> dict[str, float]:
        """Rows per second of the models that were asked, as multiples of the baseline's."""
        speeds = {name: total.rows_per_second for name, total in self.model_totals().items()}
        base = speeds.get(self.baseline_name or "", 0.0)
        return {name: speed / base for name, speed in speeds.items() if speed} if base else {}

    @property
    def baseline_name(self) -> str | None:
        """The model whose speed is 1."""
        return self.baseline or next(iter(self._manifests), None)

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def families(self) -> Iterator[Metric]:
        """All metrics, summed over the workers."""
        self.refresh()
        totals = self._counters.totals()
        for name, (text, bounds) in HISTOGRAMS.items():
            yield _histograms(name, text, bounds, totals)
        for name, (text, labels) in COUNTERS.items():
            yield _fill(CounterMetricFamily(f"labelwright_{name}", text, labels=labels), totals)
        for name, (text, labels) in GAUGES.items():
            yield _fill(GaugeMetricFamily(f"labelwright_{name}", text, labels=labels), totals)
        load = GaugeMetricFamily("labelwright_load_seconds", LOAD_SECONDS, labels=BY_MODEL)
        yield _fill(load, dict(self._slab.items()))
        yield self._info()
        yield self._ratios()

    def _info(self) -> Metric:
        info = InfoMetricFamily("labelwright_model", "The loaded models.", labels=("model",))
        for name, about in self._manifests.items():
            facts = ("version", "method", "task", "dataset")
            info.add_metric((name,), {fact: getattr(about, fact) for fact in facts})
        return info

    def _ratios(self) -> Metric:
        ratios = GaugeMetricFamily(
            "labelwright_speed_ratio",
            "Rows per second of a model's own time, as a multiple of the baseline's.",
            labels=("model", "baseline"),
        )
        for name, ratio in self.speed_ratios().items():
            ratios.add_metric((name, self.baseline_name or ""), ratio)
        return ratios

    def _histogram(self, name: str, key: Key) -> Histogram:
        bounds = HISTOGRAMS[name][1]
        return Histogram(self._slab.series((name, *key), len(bounds) + 2), bounds)


class _SharedCollector(Collector):
    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def collect(self) -> Iterable[Metric]:
        return self._telemetry.families()


def _model_totals(totals: dict[Key, list[float]], about: Manifest) -> ModelTotals:
    key = (about.name, about.method)
    return ModelTotals(
        totals[("request_seconds", *key)],
        totals[("inference_seconds", *key)],
        totals[("rows", *key)][0],
        totals.get(("queued_rows", *key), [0.0])[0],
    )


def _histograms(
    name: str, text: str, bounds: tuple[float, ...], totals: dict[Key, list[float]]
) -> Metric:
    family = HistogramMetricFamily(f"labelwright_{name}", text, labels=BY_MODEL)
    names = [*(str(float(bound)) for bound in bounds), "+Inf"]
    for key, (total, *counts) in totals.items():
        if key[0] == name:
            buckets = list(zip(names, accumulate(counts), strict=True))
            family.add_metric(key[1:], buckets, total)
    return family


def _fill(
    family: CounterMetricFamily | GaugeMetricFamily, totals: dict[Key, list[float]]
) -> Metric:
    name = family.name.removeprefix("labelwright_")
    for key, (value, *_) in totals.items():
        if key[0] == name:
            family.add_metric(key[1:], value)
    return family
