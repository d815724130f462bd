"""From parsed JSON to the types of this package; fields the client does not know are ignored."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, TypeVar

from labelwright_client._errors import (
    DeadlineExceeded,
    InvalidInput,
    ServerBusy,
    ServerFailed,
    StatusError,
)
from labelwright_client._png import read_grey
from labelwright_client._types import (
    Compared,
    Comparison,
    Embeddings,
    InputSpec,
    LatencyMs,
    Mask,
    Masks,
    ModelId,
    ModelInfo,
    ModelSpeed,
    Prediction,
    Predictions,
    QuantilesMs,
    Span,
    Spans,
    Speeds,
    Thresholds,
)

T = TypeVar("T")
IS_BRIGHT = bytes(grey >= 128 for grey in range(256))


class WrongShape(Exception):  # noqa: N818 - never leaves the package, where it becomes BadAnswer
    """An answer that lacks a field or has something else in it."""


def read_predictions(answer: object, row_count: int) -> Predictions:
    """Read the answer of `POST /predict`, which must have one prediction for each row sent."""
    return Predictions(_rows(answer, "predictions", _prediction, row_count), *_about(answer))


def read_masks(answer: object, row_count: int) -> Masks:
    """Read the answer of `POST /predict` by a model of images, one mask for each picture sent."""
    return Masks(_rows(answer, "predictions", _mask, row_count), *_about(answer))


def read_spans(answer: object, row_count: int) -> Spans:
    """Read the answer of `POST /predict` by a model of words, spans for each row sent."""
    return Spans(_rows(answer, "predictions", _spans, row_count), *_about(answer))


def read_embeddings(answer: object, row_count: int) -> Embeddings:
    """Read the answer of `POST /embed`, which must have one vector for each row sent."""
    return Embeddings(_rows(answer, "embeddings", _vector, row_count), *_about(answer))


def read_comparison(answer: object, row_count: int, request_id: str) -> Comparison:
    """Read the answer of `POST /compare`; the errors in it are returned, not raised."""
    answers = _field(answer, "answers", list)
    return Comparison(
        tuple(_compared(entry, row_count, request_id) for entry in answers), request_id
    )


def read_speeds(answer: object) -> Speeds:
    """Read the answer of `GET /compare`."""
    models = tuple(_speed(entry) for entry in _field(answer, "models", list))
    return Speeds(_field(answer, "baseline", str), models)


def read_models(answer: object) -> list[ModelInfo]:
    """Read the answer of `GET /models`."""
    return [read_model(entry) for entry in _field(answer, "models", list)]


def read_model(answer: object) -> ModelInfo:
    """Read one model, alone or out of the list."""
    scores = _field(answer, "test_scores", dict)
    thresholds = _field(answer, "thresholds", dict)
    return ModelInfo(
        name=_field(answer, "name", str),
        version=_field(answer, "version", str),
        method=_field(answer, "method", str),
        task=_field(answer, "task", str),
        dataset=_field(answer, "dataset", str),
        input=_input(_field(answer, "input", dict)),
        label_count=_field(answer, "label_count", int),
        thresholds=Thresholds(_number_or_none(thresholds, "tuned")),
        test_scores={key: _number(scores, key) for key in scores},
    )


def read_status(answer: object) -> None:
    """Check the answer of `GET /readyz`: a stranger's 200 is no readiness."""
    status = _field(answer, "status", str)
    if status != "ok":
        raise WrongShape(f"status is {status!r}")


def read_error(answer: object) -> tuple[str, str, str | None]:
    """Read type, message and request id of an error body."""
    error = _field(answer, "error", dict)
    request_id = None if _lacks(error, "request_id") else _field(error, "request_id", str)
    return _field(error, "type", str), _field(error, "message", str), request_id


def error_of(
    status: int, type_: str, message: str, request_id: str, retry_after: float | None = None
) -> StatusError:
    """The error of the tree that a status stands for."""
    if status in {429, 503}:
        return ServerBusy(message, request_id, status, type_, retry_after)
    if status < 500:
        return InvalidInput(message, request_id, status, type_)
    kind = DeadlineExceeded if status == 504 else ServerFailed
    return kind(message, request_id, status, type_)


def _compared(entry: object, row_count: int, sent_id: str) -> Compared:
    status, answer = _field(entry, "status", int), _field(entry, "answer", dict)
    milliseconds = _number(entry, "milliseconds")
    if status == 200:
        return Compared(milliseconds, read_predictions(answer, row_count), None)
    type_, message, request_id = read_error(answer)
    return Compared(milliseconds, None, error_of(status, type_, message, request_id or sent_id))


def _speed(entry: object) -> ModelSpeed:
    latency = _field(entry, "latency_ms", dict)
    return ModelSpeed(
        name=_field(entry, "name", str),
        version=_field(entry, "version", str),
        method=_field(entry, "method", str),
        dataset=_field(entry, "dataset", str),
        requests=_field(entry, "requests", int),
        rows=_field(entry, "rows", int),
        rows_per_second=_number_or_none(entry, "rows_per_second"),
        ratio=_number_or_none(entry, "ratio"),
        latency_ms=QuantilesMs(*(_number_or_none(latency, key) for key in ("p50", "p95", "p99"))),
    )


def _rows(answer: object, key: str, read: Callable[[object], T], row_count: int) -> tuple[T, ...]:
    rows = tuple(read(entry) for entry in _field(answer, key, list))
    if len(rows) != row_count:
        raise WrongShape(f"{len(rows)} {key} for {row_count} rows")
    return rows


def _about(answer: object) -> tuple[ModelId, LatencyMs, str]:
    """What every answer tells beside its rows."""
    return _model_id(answer), _latency(answer), _field(answer, "request_id", str)


def _model_id(answer: object) -> ModelId:
    model = _field(answer, "model", dict)
    return ModelId(*(_field(model, key, str) for key in ("name", "version", "method")))


def _latency(answer: object) -> LatencyMs:
    latency = _field(answer, "latency_ms", dict)
    return LatencyMs(*(_number(latency, key) for key in ("queue", "inference", "total")))


def _vector(entry: object) -> tuple[float, ...]:
    if not isinstance(entry, list):
        raise WrongShape("`embeddings` holds something else than vectors")
    return tuple(_float(value, "embeddings") for value in entry)


def _mask(entry: object) -> Mask:
    try:
        png = base64.b64decode(_field(entry, "mask", str), validate=True)
        height, width, grey = read_grey(png)
    except ValueError as error:
        raise WrongShape(f"`mask` cannot be read: {error}") from error
    pixels = grey.translate(IS_BRIGHT)
    return Mask(height, width, _number(entry, "coverage"), pixels, png)


def _spans(entry: object) -> tuple[Span, ...]:
    return tuple(
        Span(
            role=_field(span, "role", str),
            start=_field(span, "start", int),
            end=_field(span, "end", int),
            words=_texts(span, "words"),
            score=_number(span, "score"),
        )
        for span in _field(entry, "spans", list)
    )


def _prediction(entry: object) -> Prediction:
    if isinstance(entry, dict) and "mask" in entry:
        raise WrongShape("the model answers with masks: ask it by segment()")
    if isinstance(entry, dict) and "spans" in entry:
        raise WrongShape("the model answers with spans: ask it by spans()")
    labels, scores = _texts(entry, "labels"), _field(entry, "scores", list)
    if len(labels) != len(scores):
        raise WrongShape(f"{len(scores)} scores for {len(labels)} labels")
    return Prediction(labels, tuple(_float(score, "scores") for score in scores))


def _input(spec: dict[str, Any]) -> InputSpec:
    return InputSpec(
        kind=_field(spec, "kind", str),
        width=None if _lacks(spec, "width") else _field(spec, "width", int),
        names=None if _lacks(spec, "names") else _texts(spec, "names"),
    )


def _texts(source: object, key: str) -> tuple[str, ...]:
    texts = tuple(_field(source, key, list))
    if not all(isinstance(text, str) for text in texts):
        raise WrongShape(f"`{key}` holds something else than texts")
    return texts


def _number(source: object, key: str) -> float:
    return _float(_field(source, key, object), key)


def _number_or_none(source: object, key: str) -> float | None:
    # Absent and null are the same: an older server may leave out what it has none of.
    if isinstance(source, dict) and _lacks(source, key):
        return None
    return _number(source, key)


def _float(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongShape(f"`{key}` holds something else than a number")
    return float(value)


def _lacks(source: dict[str, Any], key: str) -> bool:
    return source.get(key) is None


def _field(source: object, key: str, kind: type[T]) -> T:
    if not isinstance(source, dict) or key not in source:
        raise WrongShape(f"`{key}` is missing")
    value = source[key]
    if not isinstance(value, kind):
        raise WrongShape(f"`{key}` is not of type {kind.__name__}")
    return value
