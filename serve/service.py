"""The server's core: parse -> enqueue -> answer, in plain calls for any HTTP front end.

target = serve.routes.find_target(url)     None: not a busy route, FastAPI answers it
exchange = service.begin(target, headers)  counts the request as in flight, gives it an id
service.admit(exchange)                    may raise, before the body is read
service.enqueue(exchange, body, done)      may raise; `done(outcome)` is called once, later
service.reply(exchange, outcome)           the whole HTTP answer, good or bad
service.end()                              no longer in flight
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from export.bundle import Bundle
from export.manifest import Manifest
from serve import api
from serve.batching import Finished, Job, MicroBatcher, Outcome, Predictor
from serve.bodies import unpacked
from serve.control import Control
from serve.counters import Counters
from serve.door import door_of
from serve.errors import (
    CLOSE_HEADER,
    ApiError,
    BusyError,
    DrainingError,
    InvalidInputError,
    Reply,
    TooLargeError,
    status_and_type,
)
from serve.exchange import Call, Exchange, Headers, Target
from serve.guard import Visitors
from serve.library import Library
from serve.names import Names
from serve.plan import ModelLimits, Plan
from serve.predictor import OnnxPredictor
from serve.settings import Settings
from serve.telemetry import ModelMeters, Telemetry
from serve.tracing import tracing_of
from train.errors import ConfigError, did_you_mean

logger = logging.getLogger("serve")

# Rows and answers of all waiting requests to one model stay below this.
MAX_QUEUE_BYTES = 256 * 2**20
CLIENT_GONE_STATUS = 499
RETRY_AFTER_DRAIN_SECONDS = 1
# Between two updates of gauges; a scrape asks the worker that answers it in any case.
TELL_SECONDS = 0.25
# Between two looks at whether everything that was accepted is answered.
RETIRE_SECONDS = 0.05
VISIBLE_ASCII = re.compile(rb"[!-~]{1,128}")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with everything a request to it needs."""

    predictor: OnnxPredictor
    wire: api.ModelWire
    batcher: MicroBatcher
    meters: ModelMeters
    embed_batcher: MicroBatcher | None
    """Where the model has embeddings."""

    @property
    def manifest(self) -> Manifest:
        """What the model is."""
        return self.predictor.manifest

    @property
    def batchers(self) -> list[MicroBatcher]:
        """All its queues."""
        return [self.batcher] if self.embed_batcher is None else [self.batcher, self.embed_batcher]


@dataclass(frozen=True)
class Place:
    """The place of a worker process among all of a server; by default it is the only one."""

    worker: int = 0
    counters: Counters = field(default_factory=Counters)
    control: Control = field(default_factory=Control)


class Service:
    """The loaded models and the requests in flight.

    Raises:
        ConfigError: Two bundles have the same name.
    """

    def __init__(
        self,
        settings: Settings,
        predictors: Iterable[OnnxPredictor],
        place: Place | None = None,
    ) -> None:
        place = place or Place()
        self.max_body_bytes = settings.max_body_bytes
        self.telemetry = Telemetry(place.counters, place.worker)
        self.telemetry.baseline = settings.baseline
        self.models: dict[str, LoadedModel] = {}
        self._plan = Plan()
        self.names = Names(self.models, self._plan)
        self.in_flight = 0
        self.is_draining = False
        self._idle: asyncio.Event | None = None
        self._id_prefix = secrets.token_hex(6)
        self._id_count = itertools.count(1)
        self.telemetry.watch(lambda: self.in_flight, "in_flight_requests")
        self.telemetry.watch(lambda: not self.is_draining, "ready_workers")
        self._settings = settings
        self.door = door_of(settings)
        """None where everybody may come in."""
        self.tracing = tracing_of(os.environ)
        """None where no collector is named."""
        self.visitors = Visitors(settings.max_client_connections)
        self._retiring: set[asyncio.Task[None]] = set()
        for predictor in predictors:
            self._check_name(predictor)
            self.put(predictor)
        if settings.baseline is not None and settings.baseline not in self.models:
            hint = did_you_mean(settings.baseline, self.models)
            raise ConfigError(f"--baseline {settings.baseline!r} is not loaded: {hint}")
        self.library = Library(self, settings, place.control, place.worker)
        self.telemetry.watch(lambda: len(self.library.problems), "load_problems")

    def _check_name(self, predictor: OnnxPredictor) -> None:
        name = predictor.manifest.name
        if name in self.models:
            first, second = self.models[name].predictor.bundle.path, predictor.bundle.path
            raise ConfigError(
                f"{first} and {second} are both named {name!r}: "
                "serve one of them, or export one under another name"
            )

    def put(self, predictor: OnnxPredictor) -> None:
        """Serve a model from the next request on; one of its name answers what it accepted."""
        old = self.models.get(predictor.manifest.name)
        self._add(predictor, self._settings)
        self.follow(self._plan)
        if old is not None:
            self._retire(old)

    def follow(self, plan: Plan) -> None:
        """Answer to the names and keep to the limits of a plan, from the next request on."""
        self._plan = plan
        for name, model in self.models.items():
            limits = plan.limits.get(name) or plan.limits.get(model.wire.name)
            self.models[name] = self._limited(model, limits)
        self.names = Names(self.models, plan)

    def _limited(self, model: LoadedModel, limits: ModelLimits | None) -> LoadedModel:
        limits, settings = limits or ModelLimits(), self._settings
        waiting = limits.max_queue_rows or settings.max_queue_rows
        for batcher in model.batchers:
            batcher.limit(
                max_queue_rows=waiting,
                max_wait_seconds=(limits.max_wait_ms or settings.max_wait_ms) / 1e3,
            )
        most = _most_rows(model.predictor.bundle, min(waiting, limits.max_rows or waiting))
        rules = replace(model.wire.rules, max_rows=most)
        return replace(model, wire=replace(model.wire, rules=rules))

    def remove(self, name: str) -> None:
        """Take no more requests for a model, if it is there."""
        model = self.models.pop(name, None)
        if model is not None:
            self.names = Names(self.models, self._plan)
            self.telemetry.forget_model(model.manifest)
            self._retire(model)

    def _retire(self, model: LoadedModel) -> None:
        task = asyncio.ensure_future(_closed_when_idle(model.batchers))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _add(self, predictor: OnnxPredictor, settings: Settings) -> None:
        manifest = predictor.manifest
        meters = self.telemetry.for_model(manifest)

        def batcher_of(runner: Predictor) -> MicroBatcher:
            return MicroBatcher(
                runner,
                max_batch_rows=settings.max_batch_rows,
                max_queue_rows=settings.max_queue_rows,
                max_queue_bytes=MAX_QUEUE_BYTES,
                max_wait_seconds=settings.max_wait_ms / 1e3,
                on_batch=meters.batch,
            )

        wire = api.ModelWire.of(
            predictor.bundle,
            max_rows=_most_rows(predictor.bundle, settings.max_queue_rows),
            max_characters=settings.max_text_chars,
        )
        embedder = predictor.embedder
        embed_batcher = None if embedder is None else batcher_of(embedder)
        model = LoadedModel(predictor, wire, batcher_of(predictor), meters, embed_batcher)
        self.models[manifest.name] = model
        key = (manifest.name, manifest.method)
        queues = model.batchers
        self.telemetry.watch(lambda: sum(q.queued_rows for q in queues), "queued_rows", *key)
        self.telemetry.watch(lambda: predictor.load_seconds, "load_seconds", *key)

    @property
    def is_ready(self) -> bool:
        """Whether all workers take requests."""
        return not self.is_draining and self.telemetry.ready_workers == self.telemetry.workers

    def request_id(self, headers: Headers) -> str:
        """The caller's `x-request-id` if it is usable, else a new one."""
        given = headers.get(b"x-request-id")
        if given is not None and VISIBLE_ASCII.fullmatch(given):
            return given.decode()
        return f"{self._id_prefix}-{next(self._id_count):x}"

    def begin(self, target: Target, headers: Headers) -> Exchange:
        """Count a request as in flight, from its headers on."""
        self.in_flight += 1
        return Exchange(target, headers, self.request_id(headers), time.perf_counter())

    def admit(self, exchange: Exchange) -> None:
        """Refuse what can be refused without reading the body.

        Raises:
            ApiError: The server stops, the body is too large or of a wrong type, a header is wrong.
        """
        headers = exchange.headers
        self._check_running()
        self._check_door(exchange)
        exchange.target.route.admit(headers)
        self._check_queue(exchange)
        length = headers.get(b"content-length")
        if length is not None:
            self.check_size(int(length))
        timeout = headers.get(b"x-timeout-ms")
        if timeout is not None:
            exchange.deadline = exchange.started + _milliseconds(timeout) / 1e3

    def check_open(self, exchange: Exchange) -> None:
        """Refuse a request whose headers were admitted before, if it cannot be taken now.

        Raises:
            RetryLaterError: The server stops, is busy, or the key was used too often.
        """
        self._check_running()
        self._check_door(exchange)
        self._check_queue(exchange)

    def _check_running(self) -> None:
        if self.is_draining:
            raise DrainingError(
                "the server is stopping: send the request to another one",
                retry_after=RETRY_AFTER_DRAIN_SECONDS,
            )

    def _check_door(self, exchange: Exchange) -> None:
        if self.door is not None:
            self.door.admit(exchange.headers)

    def _check_queue(self, exchange: Exchange) -> None:
        """Refuse a request to a full queue, where the queue is known without the body."""
        target = exchange.target
        model = self.names.known_early(target.model, target.version)
        if model is not None:
            try:
                target.route.batcher(model).check_open()
            except BusyError:
                exchange.model = model  # whose refusal it is
                raise

    def check_size(self, size: int) -> None:
        """Refuse a body of so many bytes, announced or already received.

        Raises:
            TooLargeError: It is larger than --max-body-mb.
        """
        if size > self.max_body_bytes:
            raise TooLargeError(
                f"a request body may have at most {self.max_body_bytes} bytes, got {size} or more: "
                "send fewer rows at once"
            )

    def enqueue(self, exchange: Exchange, body: bytes, done: Callable[[Outcome], None]) -> Job:
        """Parse a body and queue its rows; `done` is called once, in the event loop.

        Raises:
            ApiError: The request cannot be answered, or not now.
        """
        exchange.has_body = True
        encoding = exchange.headers.get(b"content-encoding")
        if encoding is not None:
            body = unpacked(body, encoding, self.max_body_bytes)
        call = exchange.call = exchange.target.route.parse(exchange, body, self.names)
        size = _answer_bytes(call, exchange.loaded)
        job = Job(call.rows, call.k, call.needs_scores, done, exchange.deadline, size)
        exchange.batcher.submit(job)
        return job

    def reply(self, exchange: Exchange, outcome: Outcome) -> Reply:
        """The HTTP answer to a request, counted and, where it is our bug, logged."""
        if not isinstance(outcome, Finished):
            return self._refusal(exchange, outcome)
        total = time.perf_counter() - exchange.started
        latency = api.Latency(outcome.queue_seconds, outcome.inference_seconds, total)
        try:
            reply = exchange.target.route.answer(exchange, outcome, latency)
        except Exception as error:  # noqa: BLE001 - it is logged and answered as our bug
            return self._refusal(exchange, error)
        exchange.loaded.meters.answer(total, outcome.queue_seconds)
        if self.tracing is not None:
            self.tracing.answered(exchange, reply.status, latency)
        return reply

    def _refusal(self, exchange: Exchange, error: Exception) -> Reply:
        if not isinstance(error, ApiError):
            about = {"request_id": exchange.request_id}
            logger.error("request %s failed", exchange.request_id, exc_info=error, extra=about)
        self._count_refusal(exchange, *status_and_type(error))
        reply = exchange.target.route.problem(error, exchange.request_id)
        if not exchange.has_body and b"expect" in exchange.headers:
            # Told before its body, a client that asked may not send the body at all, so nobody
            # could say where its next request begins.
            reply = reply._replace(more=[*reply.more, CLOSE_HEADER])
        return reply

    def forget(self, exchange: Exchange) -> None:
        """Count a request whose client hung up before its answer."""
        self._count_refusal(exchange, CLIENT_GONE_STATUS, "client_gone")

    def _count_refusal(self, exchange: Exchange, status: int, reason: str) -> None:
        manifest = exchange.model.manifest if exchange.model else None
        self.telemetry.reject(manifest, status, reason)
        if self.tracing is not None:
            self.tracing.refused(exchange, status, reason)

    def end(self) -> None:
        """Count a request as no longer in flight, after its answer was written."""
        self.in_flight -= 1
        if self._idle and not self.in_flight:
            self._idle.set()

    async def drain(self) -> None:
        """Refuse new requests from now on, and return when all accepted ones are answered.

        Those of other workers, too: until then someone has to tell new clients that it is over.
        """
        self.is_draining = True
        if self.in_flight:
            self._idle = asyncio.Event()
            await self._idle.wait()
        while self.telemetry.in_flight:
            await asyncio.sleep(RETIRE_SECONDS)

    async def tell(self) -> None:
        """Keep what other workers can read of this one up to date, for ever."""
        while True:
            self.telemetry.refresh()
            await asyncio.sleep(TELL_SECONDS)

    def close(self) -> None:
        """End the worker threads, and send the last traces."""
        for model in self.models.values():
            for batcher in model.batchers:
                batcher.close()
        if self.tracing is not None:
            self.tracing.close()


async def _closed_when_idle(batchers: list[MicroBatcher]) -> None:
    """End the threads of a model that gets no more requests, once it has answered the last."""
    while any(batcher.queued_rows for batcher in batchers):
        await asyncio.sleep(RETIRE_SECONDS)
    for batcher in batchers:
        await asyncio.to_thread(batcher.close)


def _most_rows(bundle: Bundle, allowed: int) -> int:
    """Rows that one request may have, so that dense ones are refused before they are allocated."""
    spec = bundle.manifest.input
    row_bytes = 4 * (spec.width or 1) if spec.kind == "features" else 1
    return min(allowed, max(1, MAX_QUEUE_BYTES // row_bytes))


def _answer_bytes(call: Call, model: LoadedModel) -> int:
    """What the answer will take in memory before it is written."""
    numbers = model.wire.label_count if call.needs_scores else 3 * call.k
    if isinstance(call, api.EmbedCall):
        numbers = model.manifest.embedding_size or 0
    return 4 * len(call.rows) * numbers


def _milliseconds(value: bytes) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        shown = value.decode("latin-1")[:40]
        raise InvalidInputError(
            f"x-timeout-ms must be a positive number of milliseconds, got {shown!r}"
        )
    return number
