"""`POST /predict` and `/embed`: JSON, raw float32 or .npy rows in, labels or vectors out."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import numpy as np

from serve import api
from serve.bodies import npy_rows, raw_rows
from serve.errors import (
    InvalidInputError,
    Reply,
    UnsupportedTypeError,
    error_reply,
)
from serve.exchange import Exchange, Headers
from serve.inputs import DenseRows
from serve.predictor import Embedded
from serve.quickjson import quick_payload
from serve.rows import fits, rows_of_array
from train.errors import did_you_mean

if TYPE_CHECKING:
    from serve.batching import Finished, MicroBatcher
    from serve.names import Names
    from serve.service import LoadedModel

JSON = b"application/json"
# The form type is what curl declares unless told otherwise, whatever it sends.
JSON_TYPE = re.compile(
    rb"application/(([\w.+-]+\+)?json|x-www-form-urlencoded)\s*(;.*)?", re.IGNORECASE
)
OCTETS = b"application/octet-stream"
ARRAY_READERS = {OCTETS: raw_rows, b"application/x-npy": npy_rows}
QUERY_FIELDS = ("top_k", "threshold", "model", "mask")


class PredictRoute:
    """Reads and writes the product's own format; see `serve.api`."""

    path = "/predict"

    def admit(self, headers: Headers) -> None:
        """Refuse a body that is declared to be neither JSON nor an array."""
        declared = headers.get(b"content-type")
        if declared != JSON and declared not in ARRAY_READERS:
            _check_json(declared, "application/json, application/octet-stream or application/x-npy")

    def parse(self, exchange: Exchange, body: bytes, names: Names) -> api.PredictCall:
        """Choose the model and read the rows."""
        read = ARRAY_READERS.get(exchange.headers.get(b"content-type", JSON))
        if read is not None:
            fields = _query_fields(exchange.target.query)
            exchange.model = model = names.choose(fields.get("model"))
            rules = model.wire.rules
            if rules.kind in ("text", "words"):
                raise InvalidInputError(f"this model takes {rules.kind}: send JSON, not an array")
            rows = rows_of_array(read(body, rules.width), rules)
            return api.call_of(fields, rows, model.wire)
        if exchange.target.query:
            raise InvalidInputError(
                "a JSON body holds all options itself: leave the query out of the address"
            )
        quick = quick_payload(body)
        if quick is not None:
            fields, features = quick
            if api.are_known(fields):
                exchange.model = model = names.choose(fields.get("model"))
                if fits(features, model.wire.rules):
                    return api.call_of(fields, DenseRows(features), model.wire)
        payload = api.parse_body(body)
        # Only once, as a choice is one turn of a version.
        exchange.model = model = exchange.model or names.choose(payload.get("model"))
        return api.parse_call(payload, body, model.wire)

    def batcher(self, model: LoadedModel) -> MicroBatcher:
        """The queue of the model."""
        return model.batcher

    def answer(self, exchange: Exchange, finished: Finished, latency: api.Latency) -> Reply:
        """Labels and scores of every row."""
        call, request_id = exchange.call, exchange.request_id
        assert isinstance(call, api.PredictCall)  # noqa: S101 - see `parse`
        body = api.answer(call, finished, exchange.loaded.wire, request_id, latency)
        return Reply(200, body, request_id)

    def problem(self, error: Exception, request_id: str) -> Reply:
        """The common error shape."""
        return error_reply(error, request_id)


class EmbedRoute:
    """`POST /embed`: the same rows in, their vectors out."""

    path = "/embed"

    def admit(self, headers: Headers) -> None:
        """Refuse a body that is declared to be something other than JSON."""
        _check_json(headers.get(b"content-type"), "application/json")

    def parse(self, exchange: Exchange, body: bytes, names: Names) -> api.EmbedCall:
        """Choose the model and read the rows."""
        payload = api.parse_body(body, api.EMBED_FIELDS)
        exchange.model = model = names.choose(payload.get("model"))
        self.batcher(model)
        as_bytes = OCTETS in exchange.headers.get(b"accept", b"")
        return api.parse_embed_call(payload, body, model.wire, as_bytes=as_bytes)

    def batcher(self, model: LoadedModel) -> MicroBatcher:
        """The queue of the model's embeddings, if it has any."""
        if model.embed_batcher is None:
            raise InvalidInputError(
                f"model {model.manifest.name!r} has no embeddings: its scores are no inner products"
            )
        return model.embed_batcher

    def answer(self, exchange: Exchange, finished: Finished, latency: api.Latency) -> Reply:
        """One vector for each row, as JSON or as bytes."""
        call, request_id, answer = exchange.call, exchange.request_id, finished.answer
        assert isinstance(call, api.EmbedCall)  # noqa: S101 - see `parse`
        assert isinstance(answer, Embedded)  # noqa: S101 - see `batcher`
        if call.as_bytes:
            return _octets(answer, request_id)
        body = api.embed_answer(answer, exchange.loaded.wire, request_id, latency)
        return Reply(200, body, request_id)

    def problem(self, error: Exception, request_id: str) -> Reply:
        """The common error shape."""
        return error_reply(error, request_id)


def _octets(embedded: Embedded, request_id: str) -> Reply:
    """Embeddings as float32 numbers, row after row, little end first."""
    body = np.ascontiguousarray(embedded.vectors, dtype="<f4").tobytes()
    more = [(b"x-embedding-size", b"%d" % embedded.vectors.shape[1])]
    return Reply(200, body, request_id, OCTETS, more)


def _check_json(declared: bytes | None, types: str) -> None:
    if declared is not None and not JSON_TYPE.fullmatch(declared):
        shown = declared.decode("latin-1")[:60]
        raise UnsupportedTypeError(f"send the header content-type: {types}, got {shown!r}")


@lru_cache(maxsize=1024)
def _query_fields(query: str) -> dict[str, Any]:
    """The options of a request whose body is an array, as JSON would have typed them."""
    pairs = parse_qsl(query, keep_blank_values=True)
    fields: dict[str, Any] = dict(pairs)
    for name in fields:
        if name not in QUERY_FIELDS:
            hint = did_you_mean(name[:40], QUERY_FIELDS)
            raise InvalidInputError(f"the query has an unknown field {name[:40]!r}: {hint}")
    if len(fields) != len(pairs):
        raise InvalidInputError("the query has a field twice: give each once")
    top_k, threshold = fields.get("top_k"), fields.get("threshold")
    if top_k is not None and top_k.isascii() and top_k.isdigit():
        fields["top_k"] = int(top_k[:20])
    if threshold is not None:
        fields["threshold"] = _number(threshold)
    return fields


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
