"""`POST /predict`: JSON, raw float32 or .npy rows in, labels with their scores out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from serve import api
from serve.bodies import npy_rows, raw_rows
from serve.errors import (
    InvalidInputError,
    Reply,
    UnsupportedTypeError,
    error_reply,
    json_reply,
)
from serve.exchange import Exchange, Headers
from serve.predictor import Scored
from serve.quickjson import quick_payload
from serve.rows import checked_features
from train.errors import did_you_mean

if TYPE_CHECKING:
    from serve.service import LoadedModel

JSON = b"application/json"
# The form type is what curl declares unless told otherwise, whatever it sends.
JSON_TYPE = re.compile(
    rb"application/(([\w.+-]+\+)?json|x-www-form-urlencoded)\s*(;.*)?", re.IGNORECASE
)
ARRAY_READERS = {b"application/octet-stream": raw_rows, b"application/x-npy": npy_rows}
QUERY_FIELDS = ("top_k", "threshold", "model")


class PredictRoute:
    """Reads and writes the product's own format; see `serve.api`."""

    def admit(self, headers: Headers) -> None:
        """Refuse a body that is declared to be neither JSON nor an array."""
        declared = headers.get(b"content-type")
        if declared is None or declared == JSON or declared in ARRAY_READERS:
            return
        if not JSON_TYPE.fullmatch(declared):
            shown = declared.decode("latin-1")[:60]
            raise UnsupportedTypeError(
                "send the header content-type: application/json, application/octet-stream or "
                f"application/x-npy, got {shown!r}"
            )

    def parse(
        self, exchange: Exchange, body: bytes, models: Mapping[str, LoadedModel]
    ) -> api.PredictCall:
        """Choose the model and read the rows."""
        read = ARRAY_READERS.get(exchange.headers.get(b"content-type", JSON))
        if read is not None:
            fields = _query_fields(exchange.target.query)
            exchange.model = model = api.choose_model(fields.get("model"), models)
            width, max_rows = model.wire.width, model.wire.max_rows
            features = checked_features(read(body, width), width, max_rows)
            return api.call_of(fields, features, model.wire)
        if exchange.target.query:
            raise InvalidInputError(
                "a JSON body holds all options itself: leave the query out of the address"
            )
        quick = quick_payload(body)
        if quick is not None:
            fields, features = quick
            if api.are_known(fields):
                exchange.model = model = api.choose_model(fields.get("model"), models)
                if features.shape[1] == model.wire.width and len(features) <= model.wire.max_rows:
                    return api.call_of(fields, features, model.wire)
        payload = api.parse_body(body)
        exchange.model = model = api.choose_model(payload.get("model"), models)
        return api.parse_call(payload, body, model.wire)

    def answer(self, exchange: Exchange, scored: Scored, latency: api.Latency) -> Reply:
        """Labels and scores of every row."""
        assert isinstance(exchange.call, api.PredictCall)  # noqa: S101 - see `parse`
        request_id = exchange.request_id
        body = api.answer(exchange.call, scored, exchange.loaded.wire, request_id, latency)
        return json_reply(200, body, request_id)

    def problem(self, error: Exception, request_id: str) -> Reply:
        """The common error shape."""
        return error_reply(error, request_id)


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
