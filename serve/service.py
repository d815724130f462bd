"""The server's core: parse -> enqueue -> answer, in plain calls for any HTTP front end.

exchange = service.begin(headers, path)   counts the request as in flight, gives it an id
service.admit(exchange, headers)          may raise, before the body is read
service.enqueue(exchange, body, done)     may raise; `done(outcome)` is called once, later
service.reply(exchange, outcome)          the whole HTTP answer, good or bad
service.end()                             no longer in flight
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from export.bundle import Bundle
from export.manifest import Manifest
from serve import api
from serve.batching import Finished, Job, MicroBatcher, Outcome, Predictor
from serve.errors import (
    ApiError,
    DrainingError,
    InvalidInputError,
    Reply,
    TooLargeError,
    UnsupportedTypeError,
    error_reply,
    json_reply,
    status_and_type,
)
from serve.predictor import Embedded, OnnxPredictor, Scored
from serve.settings import Settings
from serve.telemetry import ModelMeters, Telemetry
from train.errors import ConfigError

logger = logging.getLogger("serve")

# Rows and answers of all waiting requests to one model stay below this.
MAX_QUEUE_BYTES = 256 * 2**20
PREDICT_PATH, EMBED_PATH = "/predict", "/embed"
OCTETS = b"application/octet-stream"
CLIENT_GONE_STATUS = 499
RETRY_AFTER_DRAIN_SECONDS = 1
VISIBLE_ASCII = re.compile(rb"[!-~]{1,128}")
# The form type is what curl declares unless told otherwise, whatever it sends.
JSON_TYPE = re.compile(
    rb"application/(([\w.+-]+\+)?json|x-www-form-urlencoded)\s*(;.*)?", re.IGNORECASE
)

Headers = Mapping[bytes, bytes]


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

    def batcher_of(self, path: str) -> MicroBatcher:
        """The queue of a route.

        Raises:
            InvalidInputError: The model has no embeddings.
        """
        if path == PREDICT_PATH:
            return self.batcher
        if self.embed_batcher is None:
            raise InvalidInputError(
                f"model {self.manifest.name!r} has no embeddings: its scores are no inner products"
            )
        return self.embed_batcher


@dataclass(slots=True)
class Exchange:
    """One request on its way; filled in as more of it becomes known."""

    request_id: str
    started: float
    path: str
    wants_bytes: bool = False
    deadline: float = math.inf
    model: LoadedModel | None = None
    call: api.Call | None = field(default=None, repr=False)
    batcher: MicroBatcher | None = None


class Service:
    """The loaded models and the requests in flight.

    Raises:
        ConfigError: Two bundles have the same name.
    """

    def __init__(self, settings: Settings, predictors: Iterable[OnnxPredictor]) -> None:
        self.max_body_bytes = settings.max_body_bytes
        self.telemetry = Telemetry()
        self.models: dict[str, LoadedModel] = {}
        self.in_flight = 0
        self.is_draining = False
        self._idle: asyncio.Event | None = None
        self._id_prefix = secrets.token_hex(6)
        self._id_count = itertools.count(1)
        self.telemetry.watch_in_flight(lambda: self.in_flight)
        for predictor in predictors:
            self._add(predictor, settings)

    def _add(self, predictor: OnnxPredictor, settings: Settings) -> None:
        manifest = predictor.manifest
        if manifest.name in self.models:
            first, second = self.models[manifest.name].predictor.bundle.path, predictor.bundle.path
            raise ConfigError(
                f"{first} and {second} are both named {manifest.name!r}: "
                "serve one of them, or export one under another name"
            )
        meters = self.telemetry.for_model(manifest)
        self.telemetry.loaded(manifest, predictor.load_seconds)

        def batcher_of(runner: Predictor) -> MicroBatcher:
            return MicroBatcher(
                runner,
                max_batch_rows=settings.max_batch_rows,
                max_queue_rows=settings.max_queue_rows,
                max_queue_bytes=MAX_QUEUE_BYTES,
                on_batch=meters.batch,
            )

        batcher = batcher_of(predictor)
        embedder = predictor.embedder
        embed_batcher = None if embedder is None else batcher_of(embedder)
        queues = [batcher] if embed_batcher is None else [batcher, embed_batcher]
        self.telemetry.watch_queue(manifest, lambda: sum(queue.queued_rows for queue in queues))
        wire = api.ModelWire.of(
            predictor.bundle,
            max_rows=_most_rows(predictor.bundle, settings),
            max_characters=settings.max_text_chars,
        )
        self.models[manifest.name] = LoadedModel(predictor, wire, batcher, meters, embed_batcher)

    def request_id(self, headers: Headers) -> str:
        """The caller's `x-request-id` if it is usable, else a new one."""
        given = headers.get(b"x-request-id")
        if given is not None and VISIBLE_ASCII.fullmatch(given):
            return given.decode()
        return f"{self._id_prefix}-{next(self._id_count):x}"

    def begin(self, headers: Headers, path: str) -> Exchange:
        """Count a request as in flight, from its headers on."""
        self.in_flight += 1
        return Exchange(self.request_id(headers), time.perf_counter(), path)

    def admit(self, exchange: Exchange, headers: Headers) -> None:
        """Refuse what can be refused without reading the body.

        Raises:
            ApiError: The server stops, the body is too large or no JSON, a header is wrong.
        """
        if self.is_draining:
            raise DrainingError(
                "the server is stopping: send the request to another one",
                retry_after=RETRY_AFTER_DRAIN_SECONDS,
            )
        declared = headers.get(b"content-type")
        if declared is not None and not JSON_TYPE.fullmatch(declared):
            shown = declared.decode("latin-1")[:60]
            raise UnsupportedTypeError(
                f"send the header content-type: application/json, got {shown!r}"
            )
        self.check_size(int(headers.get(b"content-length", b"0")))
        exchange.wants_bytes = OCTETS in headers.get(b"accept", b"")
        timeout = headers.get(b"x-timeout-ms")
        if timeout is not None:
            exchange.deadline = exchange.started + _milliseconds(timeout) / 1e3

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
        is_embed = exchange.path == EMBED_PATH
        payload = api.parse_body(body, api.EMBED_FIELDS if is_embed else api.PREDICT_FIELDS)
        exchange.model = model = api.choose_model(payload.get("model"), self.models)
        exchange.batcher = batcher = model.batcher_of(exchange.path)
        call: api.Call
        if is_embed:
            call = api.parse_embed_call(payload, body, model.wire, as_bytes=exchange.wants_bytes)
            answer_bytes = 4 * len(call.rows) * (model.manifest.embedding_size or 0)
        else:
            call = api.parse_call(payload, body, model.wire)
            answer_bytes = (
                4 * len(call.rows) * (model.wire.label_count if call.needs_scores else 3 * call.k)
            )
        exchange.call = call
        job = Job(call.rows, call.k, call.needs_scores, done, exchange.deadline, answer_bytes)
        batcher.submit(job)
        return job

    def reply(self, exchange: Exchange, outcome: Outcome) -> Reply:
        """The HTTP answer to a request, counted and, where it is our bug, logged."""
        model, call = exchange.model, exchange.call
        if not isinstance(outcome, Finished) or model is None or call is None:
            return self._refusal(exchange, outcome)
        total = time.perf_counter() - exchange.started
        latency = api.Latency(outcome.queue_seconds, outcome.inference_seconds, total)
        model.meters.answer(total, outcome.queue_seconds)
        answer = outcome.answer
        if isinstance(call, api.PredictCall) and isinstance(answer, Scored):
            body = api.answer(call, answer, model.wire, exchange.request_id, latency)
            return json_reply(200, body, exchange.request_id)
        if isinstance(call, api.EmbedCall) and isinstance(answer, Embedded):
            if call.as_bytes:
                return _octets(answer, exchange.request_id)
            body = api.embed_answer(answer, model.wire, exchange.request_id, latency)
            return json_reply(200, body, exchange.request_id)
        return self._refusal(exchange, TypeError("an answer to another call"))

    def _refusal(self, exchange: Exchange, outcome: Outcome) -> Reply:
        error = outcome if isinstance(outcome, Exception) else TypeError("an answer without a call")
        if not isinstance(error, ApiError):
            logger.error("request %s failed", exchange.request_id, exc_info=error)
        self._count_refusal(exchange, *status_and_type(error))
        return error_reply(error, exchange.request_id)

    def forget(self, exchange: Exchange) -> None:
        """Count a request whose client hung up before its answer."""
        self._count_refusal(exchange, CLIENT_GONE_STATUS, "client_gone")

    def _count_refusal(self, exchange: Exchange, status: int, reason: str) -> None:
        manifest = exchange.model.manifest if exchange.model else None
        self.telemetry.reject(manifest, status, reason)

    def end(self) -> None:
        """Count a request as no longer in flight, after its answer was written."""
        self.in_flight -= 1
        if self._idle and not self.in_flight:
            self._idle.set()

    async def drain(self) -> None:
        """Refuse new requests from now on, and return when all accepted ones are answered."""
        self.is_draining = True
        if self.in_flight:
            self._idle = asyncio.Event()
            await self._idle.wait()

    def close(self) -> None:
        """End the worker threads."""
        for model in self.models.values():
            model.batcher.close()
            if model.embed_batcher is not None:
                model.embed_batcher.close()


def _most_rows(bundle: Bundle, settings: Settings) -> int:
    """Rows that one request may have, so that dense ones are refused before they are allocated."""
    spec = bundle.manifest.input
    row_bytes = 4 * (spec.width or 1) if spec.kind == "features" else 1
    return min(settings.max_queue_rows, max(1, MAX_QUEUE_BYTES // row_bytes))


def _octets(embedded: Embedded, request_id: str) -> Reply:
    """Embeddings as float32 numbers, row after row, little end first."""
    body = np.ascontiguousarray(embedded.vectors, dtype="<f4").tobytes()
    headers = [
        (b"content-type", OCTETS),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
        (b"x-embedding-size", str(embedded.vectors.shape[1]).encode()),
    ]
    return Reply(200, headers, body)


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
