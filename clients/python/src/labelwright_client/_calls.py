"""Every request of this package, by pure functions: what is sent, how its answer is read."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, SupportsFloat, SupportsIndex, TypeVar
from urllib.parse import quote, urlencode

from labelwright_client._answers import (
    read_comparison,
    read_embeddings,
    read_masks,
    read_model,
    read_models,
    read_predictions,
    read_spans,
    read_speeds,
    read_status,
)
from labelwright_client._errors import InvalidArgument
from labelwright_client._pictures import Pictures, encode_pictures
from labelwright_client._rows import Rows, array_bytes, encode_rows
from labelwright_client._trace import REQUEST_ID, Asker
from labelwright_client._types import (
    Comparison,
    Embeddings,
    Masks,
    ModelInfo,
    Predictions,
    Spans,
    Speeds,
)

T = TypeVar("T")
Threshold = SupportsFloat | Literal["tuned", "per-label"]


@dataclass(frozen=True, kw_only=True)
class Call(Generic[T]):
    """One request, and how to read its answer; retries send the same call, under the same id."""

    method: str
    path: str
    asker: Asker
    read: Callable[[Any], T]
    content: bytes | None = None
    content_type: str = "application/json"

    @property
    def request_id(self) -> str:
        """The id that the server's log has."""
        return self.asker.request_id

    @property
    def headers(self) -> dict[str, str]:
        """Headers that are this call's own."""
        kind = {} if self.content is None else {"content-type": self.content_type}
        return {**self.asker.trace, REQUEST_ID: self.request_id, **kind}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The options of a prediction; those that are None are left out, so that the server decides."""

    top_k: SupportsIndex | None = None
    threshold: Threshold | None = None
    model: str | None = None

    def fields(self) -> dict[str, Any]:
        """The options as JSON values."""
        options: dict[str, Any] = {}
        if self.top_k is not None:
            options["top_k"] = _whole(self.top_k)
        if self.threshold is not None:
            word = self.threshold
            options["threshold"] = word if isinstance(word, str) else _finite(word)
        if self.model is not None:
            options["model"] = self.model
        return options


def predict_call(rows: Rows, choice: Choice, asker: Asker) -> Call[Predictions]:
    """Build `POST /predict`; an array goes as its bytes, at a fraction of the cost of JSON."""
    options = choice.fields()
    packed = array_bytes(rows)
    if packed is not None:
        content, count = packed
        query = f"?{urlencode(options)}" if options else ""
        return Call(
            method="POST",
            path=f"/predict{query}",
            asker=asker,
            read=lambda answer: read_predictions(answer, row_count=count),
            content=content,
            content_type="application/x-npy",
        )
    inputs = encode_rows(rows)
    return Call(
        method="POST",
        path="/predict",
        asker=asker,
        read=lambda answer: read_predictions(answer, row_count=len(inputs)),
        content=_json_bytes({"inputs": inputs, **options}),
    )


def segment_call(pictures: Pictures, choice: Choice, asker: Asker) -> Call[Masks]:
    """Build `POST /predict` for a model of images; a PNG brings its size along, runs do not."""
    inputs = encode_pictures(pictures)
    return Call(
        method="POST",
        path="/predict",
        asker=asker,
        read=lambda answer: read_masks(answer, row_count=len(inputs)),
        content=_json_bytes({"inputs": inputs, "mask": "png", **choice.fields()}),
    )


def spans_call(rows: Sequence[Mapping[str, Any]], choice: Choice, asker: Asker) -> Call[Spans]:
    """Build `POST /predict` for a model of words; whether rows are right is for it to say."""
    if isinstance(rows, str | Mapping) or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidArgument(
            'expected a list of rows such as {"tokens": ["She", "laughed"], "predicate": 1}'
        )
    inputs = [dict(row) for row in rows]
    return Call(
        method="POST",
        path="/predict",
        asker=asker,
        read=lambda answer: read_spans(answer, row_count=len(inputs)),
        content=_json_bytes({"inputs": inputs, **choice.fields()}),
    )


def embed_call(rows: Rows, choice: Choice, asker: Asker) -> Call[Embeddings]:
    """Build `POST /embed`, which takes JSON only."""
    inputs = encode_rows(rows)
    return Call(
        method="POST",
        path="/embed",
        asker=asker,
        read=lambda answer: read_embeddings(answer, row_count=len(inputs)),
        content=_json_bytes({"inputs": inputs, **choice.fields()}),
    )


def compare_call(
    rows: Rows, choice: Choice, models: Sequence[str] | None, asker: Asker
) -> Call[Comparison]:
    """Build `POST /compare`, which takes JSON only; `models` None means all of them."""
    if isinstance(models, str):
        raise InvalidArgument(f"models is the text {models!r}: expected a list of names")
    inputs = encode_rows(rows)
    names = {} if models is None else {"models": list(models)}
    return Call(
        method="POST",
        path="/compare",
        asker=asker,
        read=lambda answer: read_comparison(answer, len(inputs), asker.request_id),
        content=_json_bytes({"inputs": inputs, **names, **choice.fields()}),
    )


def speeds_call(baseline: str | None, asker: Asker) -> Call[Speeds]:
    """Build `GET /compare`."""
    query = "" if baseline is None else f"?{urlencode({'baseline': baseline})}"
    return Call(method="GET", path=f"/compare{query}", asker=asker, read=read_speeds)


def models_call(asker: Asker) -> Call[list[ModelInfo]]:
    """Build `GET /models`."""
    return Call(method="GET", path="/models", asker=asker, read=read_models)


def model_call(name: str, asker: Asker) -> Call[ModelInfo]:
    """Build `GET /models/{name}`; a slash in the name stays inside its segment."""
    if name in {"", ".", ".."}:
        # As the last part of a path these name another place, which would answer.
        raise InvalidArgument(f"expected the name of a model, got {name!r}: models() lists them")
    path = f"/models/{quote(name, safe='')}"
    return Call(method="GET", path=path, asker=asker, read=read_model)


def ready_call(asker: Asker) -> Call[None]:
    """Build `GET /readyz`."""
    return Call(method="GET", path="/readyz", asker=asker, read=read_status)


def _json_bytes(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _whole(top_k: SupportsIndex) -> int:
    try:
        return operator.index(top_k)
    except TypeError as error:
        raise InvalidArgument(f"top_k is {top_k!r}: expected a whole number") from error


def _finite(threshold: SupportsFloat) -> float:
    try:
        value = float(threshold)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise InvalidArgument(
            f"threshold is {threshold!r}: expected a finite number, 'tuned' or 'per-label'"
        )
    return value
