"""The wire format of `POST /predict` and `/embed`: bytes to a `Call`, scores to bytes.

{"inputs": [[0.1, ...]] or [{"3": 1.0}] or ["some text"], "top_k": 5,
 "threshold": 0.5 or "tuned" or "per-label", "model": "..."}
A model of images takes "mask": "png" or "rle" in place of "top_k", see `serve.images`.
{"model": {"name", "version", "method"}, "predictions": [{"labels": [...], "scores": [...]}],
 "latency_ms": {"queue", "inference", "total"}, "request_id": "..."}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from export.bundle import Bundle
from serve.errors import InvalidInputError, MalformedBodyError, UnknownModelError
from serve.images import FORMATS, mask_answers
from serve.inputs import Rows
from serve.kinds import kind_of
from serve.predictor import Embedded, Scored
from serve.rows import RowRules, may_hold_booleans, parse_rows
from train.errors import did_you_mean

Model = TypeVar("Model")

PREDICT_FIELDS = ("inputs", "top_k", "threshold", "model", "mask")
EMBED_FIELDS = ("inputs", "model")
DEFAULT_TOP_K = 5
MASK_THRESHOLD = np.float32(0.5)
THRESHOLD_WORDS = ("tuned", "per-label")
# orjson points at the number or at the sign before it; Python's json writes these words.
NOT_JSON_NUMBERS = re.compile(r"-?(NaN|Infinity|nan|inf)")


@dataclass(frozen=True, slots=True)
class ModelWire:
    """What the wire needs to know of one model, prepared once when it is loaded."""

    rules: RowRules
    label_count: int
    tuned: np.float32
    per_label: NDArray[np.float32]
    head: orjson.Fragment
    """The "model" object of every answer, as JSON."""
    labels: Sequence[str]

    @classmethod
    def of(cls, bundle: Bundle, *, max_rows: int, max_characters: int) -> ModelWire:
        """Encode everything about a model that is the same in all answers."""
        manifest = bundle.manifest
        head = {"name": manifest.name, "version": manifest.version, "method": manifest.method}
        spec = manifest.input
        return cls(
            rules=RowRules(
                spec.kind,
                spec.width or 0,
                max_rows,
                max_characters,
                None if spec.image is None else (spec.image.height, spec.image.width),
            ),
            label_count=manifest.label_count,
            tuned=np.float32(manifest.thresholds.tuned),
            per_label=bundle.per_label,
            head=orjson.Fragment(orjson.dumps(head)),
            labels=bundle.labels,
        )


@dataclass(frozen=True, slots=True)
class PredictCall:
    """A request for predictions that can be answered."""

    rows: Rows
    top_k: int | None
    """At most so many labels a row; None: every label that reaches the threshold."""
    threshold: np.float32 | NDArray[np.float32] | None
    """One for all labels, or one for each (labels,)."""
    mask: str | None = None
    """How to answer with masks, one of `FORMATS`; None: with labels."""

    @property
    def needs_scores(self) -> bool:
        """Whether labels beyond the best `top_k` matter, which the graph does not rank."""
        return self.mask is not None or (
            self.threshold is not None and (self.top_k is None or self.threshold.ndim == 1)
        )

    @property
    def k(self) -> int:
        """How many labels the graph has to rank."""
        return 1 if self.needs_scores or self.top_k is None else self.top_k


@dataclass(frozen=True, slots=True)
class EmbedCall:
    """A request for embeddings that can be answered."""

    rows: Rows
    as_bytes: bool
    """As float32 numbers one after another, and not as JSON."""
    needs_scores: bool = False
    k: int = 1


Call = PredictCall | EmbedCall


class Latency(NamedTuple):
    """Where the time of one request went, in seconds."""

    queue: float
    inference: float
    total: float


def parse_body(body: bytes, fields: Sequence[str] = PREDICT_FIELDS) -> dict[str, Any]:
    """Read the JSON object of a request and refuse fields that do not exist.

    Raises:
        MalformedBodyError: Not JSON.
        InvalidInputError: JSON, but no object, or one with unknown fields.
    """
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        payload = _with_infinities(body, error)
    if not isinstance(payload, dict):
        raise InvalidInputError(
            f'the body must be an object such as {{"inputs": [[...]]}}, got {kind_of(payload)}'
        )
    if not are_known(payload, fields):
        name = next(name for name in payload if name not in fields)
        hint = did_you_mean(name[:40], fields)
        raise InvalidInputError(f"the body has an unknown field {name[:40]!r}: {hint}")
    if "inputs" not in payload:
        raise InvalidInputError('the body has no "inputs": send {"inputs": [[...]]}')
    return payload


def are_known(names: Iterable[str], fields: Sequence[str] = PREDICT_FIELDS) -> bool:
    """Whether a body has no fields but those that exist."""
    return all(name in fields for name in names)


def _with_infinities(body: bytes, error: orjson.JSONDecodeError) -> object:
    # 1e999 is JSON, but orjson refuses what a double cannot hold. It is read again the slow way, so
    # that the message can name the row.
    if "infinity" in error.msg:
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            pass
    raise MalformedBodyError(_what_is_malformed(body, error)) from error


def _what_is_malformed(body: bytes, error: orjson.JSONDecodeError) -> str:
    if not body.strip():
        return 'the body is empty: send JSON such as {"inputs": [[...]]}'
    word = NOT_JSON_NUMBERS.match(error.doc, max(0, error.pos - 1)) or NOT_JSON_NUMBERS.match(
        error.doc, error.pos
    )
    if word:
        return (
            f"the body has {word[0]} at position {error.pos}, which JSON does not know: "
            "send finite numbers only"
        )
    return f"the body is not JSON: {error.msg} at position {error.pos}"


def choose_model(name: object, models: Mapping[str, Model]) -> Model:
    """The model a request means; it may go unnamed while there is only one.

    Raises:
        InvalidInputError: No name although several models are loaded, or a name that is no string.
        UnknownModelError: No model of that name.
    """
    if name is None:
        if len(models) == 1:
            return next(iter(models.values()))
        loaded = ", ".join(sorted(models))
        raise InvalidInputError(f'"model" must name one of the loaded models: {loaded}')
    if not isinstance(name, str):
        raise InvalidInputError(f'"model" must be a string, got {kind_of(name)}')
    if name not in models:
        hint = did_you_mean(name[:100], models)
        raise UnknownModelError(f"no model {name[:100]!r} is loaded: {hint}")
    return models[name]


def parse_call(payload: dict[str, Any], body: bytes, wire: ModelWire) -> PredictCall:
    """Check the fields of a request against the model that is to answer it."""
    limits = _limits(payload, wire)
    rows = parse_rows(payload["inputs"], wire.rules, with_booleans=may_hold_booleans(body))
    return PredictCall(rows, *limits)


def parse_embed_call(
    payload: dict[str, Any], body: bytes, wire: ModelWire, *, as_bytes: bool
) -> EmbedCall:
    """Check the rows of a request for embeddings."""
    rows = parse_rows(payload["inputs"], wire.rules, with_booleans=may_hold_booleans(body))
    return EmbedCall(rows, as_bytes)


def call_of(fields: dict[str, Any], rows: Rows, wire: ModelWire) -> PredictCall:
    """A call whose rows were read and checked before, with the other fields of its request."""
    return PredictCall(rows, *_limits(fields, wire))


def _limits(
    fields: dict[str, Any], wire: ModelWire
) -> tuple[int | None, np.float32 | NDArray[np.float32] | None, str | None]:
    threshold = _threshold(fields.get("threshold"), wire)
    mask = _mask(fields, wire)
    if mask is not None:
        return None, MASK_THRESHOLD if threshold is None else threshold, mask
    top_k = _top_k(fields.get("top_k"), wire.label_count)
    if top_k is None and threshold is None:
        top_k = min(DEFAULT_TOP_K, wire.label_count)
    return top_k, threshold, None


def _mask(fields: dict[str, Any], wire: ModelWire) -> str | None:
    value = fields.get("mask")
    if wire.rules.image is None:
        if value is not None:
            raise InvalidInputError('"mask" is for models of images: leave it out')
        return None
    if fields.get("top_k") is not None:
        raise InvalidInputError('this model answers with masks: leave "top_k" out')
    if value not in (None, *FORMATS):
        raise InvalidInputError(
            f'"mask" must be {" or ".join(map(json.dumps, FORMATS))}, got {_shown(value)}'
        )
    return value or FORMATS[0]


def _top_k(value: object, label_count: int) -> int | None:
    if value is None:
        return None
    if type(value) is not int:
        raise InvalidInputError(f'"top_k" must be a whole number, got {_shown(value)}')
    if not 1 <= value <= label_count:
        raise InvalidInputError(
            f'"top_k" must be 1 to {label_count}, the number of labels, got {_shown(value)}'
        )
    return value


def _threshold(value: object, wire: ModelWire) -> np.float32 | NDArray[np.float32] | None:
    if value is None:
        return None
    if value == "tuned":
        return wire.tuned
    if value == "per-label":
        return wire.per_label
    if type(value) in (int, float) and 0 <= value <= 1:  # type: ignore[operator]
        # Scores are float32, and a threshold read off an answer must let that very score pass.
        return np.float32(value)  # type: ignore[arg-type]
    words = " or ".join(f'"{word}"' for word in THRESHOLD_WORDS)
    raise InvalidInputError(
        f'"threshold" must be a number from 0 to 1, {words}, got {_shown(value)}'
    )


def _shown(value: object) -> str:
    if isinstance(value, (list, dict)):
        return kind_of(value)
    return json.dumps(value if not isinstance(value, str) else value[:40])[:60]


def embed_answer(embedded: Embedded, wire: ModelWire, request_id: str, latency: Latency) -> bytes:
    """The body of a 200 answer of `/embed`, as JSON."""
    return orjson.dumps(
        {
            "model": wire.head,
            "embeddings": np.ascontiguousarray(embedded.vectors),
            "latency_ms": _milliseconds(latency),
            "request_id": request_id,
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def answer(
    call: PredictCall, scored: Scored, wire: ModelWire, request_id: str, latency: Latency
) -> bytes:
    """The body of a 200 answer."""
    return orjson.dumps(
        {
            "model": wire.head,
            "predictions": _predictions(call, scored, wire),
            "latency_ms": _milliseconds(latency),
            "request_id": request_id,
        },
        # Writes float32 with as few digits as tell it from its neighbours.
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def _predictions(call: PredictCall, scored: Scored, wire: ModelWire) -> list[dict[str, Any]]:
    if call.mask is not None and wire.rules.image is not None:
        assert scored.scores is not None  # noqa: S101 - see `needs_scores`
        assert call.threshold is not None  # noqa: S101 - see `_limits`
        return list(mask_answers(scored.scores, call.threshold, wire.rules.image, call.mask))
    names = wire.labels
    return [
        {"labels": [names[label] for label in labels], "scores": scores}
        for labels, scores in _ranked(call, scored)
    ]


def _milliseconds(latency: Latency) -> dict[str, float]:
    return {
        "queue": round(latency.queue * 1e3, 3),
        "inference": round(latency.inference * 1e3, 3),
        "total": round(latency.total * 1e3, 3),
    }


def _ranked(call: PredictCall, scored: Scored) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
    if call.needs_scores:
        return _above_threshold(call, scored)
    return _best(call, scored)


def _best(call: PredictCall, scored: Scored) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
    """The graph's ranking, cut to this call's k: the batch may have been run with a larger one."""
    for labels, scores in zip(scored.top_labels, scored.top_scores, strict=True):
        best = scores[: call.top_k]
        if call.threshold is not None:
            best = best[best >= call.threshold]
        yield labels[: len(best)].tolist(), best


def _above_threshold(
    call: PredictCall, scored: Scored
) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
    assert scored.scores is not None  # noqa: S101 - the batcher asks for what `needs_scores` says
    for scores in scored.scores:
        labels = np.flatnonzero(scores >= call.threshold)
        # Stable, so that equal scores keep the order of their columns as in the graph's ranking.
        order = labels[np.argsort(-scores[labels], kind="stable")][: call.top_k]
        yield order.tolist(), scores[order]
