"""The wire format of `POST /predict` and `/embed`: bytes to a `Call`, scores to bytes.

{"inputs": [[0.1, ...]] or [{"3": 1.0}] or ["some text"], "top_k": 5,
 "threshold": 0.5 or "tuned" or "per-label", "model": "..."}
A model of images takes "mask": "png" or "rle" in place of "top_k", see `serve.images`; one of words
takes rows such as {"tokens": [...], "predicate": 3} and answers with spans, see `serve.words`.
{"model": {"name", "version", "method"}, "predictions": [{"labels": [...], "scores": [...]}],
 "latency_ms": {"queue", "inference", "total"}, "request_id": "..."}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from export.bundle import Bundle
from serve.batching import Finished
from serve.errors import InvalidInputError, MalformedBodyError
from serve.images import FORMATS, mask_answers
from serve.inputs import Rows, WordRows
from serve.kinds import kind_of
from serve.predictor import Embedded, Scored
from serve.rows import RowRules, may_hold_booleans, parse_rows
from serve.words import constrained_words, span_answers
from train.errors import did_you_mean

PREDICT_FIELDS = ("inputs", "top_k", "threshold", "model", "mask")
EMBED_FIELDS = ("inputs", "model")
DEFAULT_TOP_K = 5
MASK_THRESHOLD = np.float32(0.5)
MOST_LIMITS = 1024
THRESHOLD_WORDS = ("tuned", "per-label")
# orjson points at the number or at the sign before it; Python's json writes these words.
NOT_JSON_NUMBERS = re.compile(r"-?(NaN|Infinity|nan|inf)")


class Limits(NamedTuple):
    """Which labels of a row are answered."""

    top_k: int | None
    """At most so many; None: every label that reaches the threshold."""
    threshold: np.float32 | NDArray[np.float32] | None
    """One for all labels, or one for each (labels,)."""
    needs_scores: bool
    """Whether labels beyond the best `top_k` matter, which the graph does not rank."""
    k: int
    """How many labels the graph has to rank."""
    mask: str | None = None
    """How to answer with masks, one of `FORMATS`; None: with labels."""


class LabelTexts(dict[int, bytes]):
    """Labels as JSON by column; each is encoded when first asked for: few of a million ever are."""

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__()
        self._labels = labels

    def __missing__(self, column: int) -> bytes:
        """Encode a label for the first time."""
        text = self[column] = orjson.dumps(self._labels[column])
        return text


@dataclass(frozen=True, slots=True)
class ModelWire:
    """What the wire needs to know of one model, prepared once when it is loaded."""

    name: str
    """Under which it answers: that of the manifest without the version of a second version."""
    rules: RowRules
    label_count: int
    tuned: np.float32
    per_label: NDArray[np.float32]
    head: bytes
    """The "model" object of every answer, as JSON."""
    labels: Sequence[str]
    label_texts: LabelTexts
    limits: dict[tuple[object, ...], Limits] = field(default_factory=dict)
    """Those that were asked for, by what was asked."""

    @classmethod
    def of(cls, bundle: Bundle, *, max_rows: int, max_characters: int) -> ModelWire:
        """Encode everything about a model that is the same in all answers."""
        manifest = bundle.manifest
        name = manifest.name.removesuffix(f"@{manifest.version}")
        head = {"name": name, "version": manifest.version, "method": manifest.method}
        spec = manifest.input
        return cls(
            name=name,
            rules=RowRules(
                spec.kind,
                spec.width or 0,
                max_rows,
                max_characters,
                None if spec.image is None else (spec.image.height, spec.image.width),
                bool(spec.predicate),
                manifest.constrained,
            ),
            label_count=manifest.label_count,
            tuned=np.float32(manifest.thresholds.tuned),
            per_label=bundle.per_label,
            head=orjson.dumps(head),
            labels=bundle.labels,
            label_texts=LabelTexts(bundle.labels),
        )


class PredictCall(NamedTuple):
    """A request for predictions that can be answered."""

    rows: Rows
    limits: Limits
    k: int
    needs_scores: bool


class EmbedCall(NamedTuple):
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


def parse_call(payload: dict[str, Any], body: bytes, wire: ModelWire) -> PredictCall:
    """Check the fields of a request against the model that is to answer it."""
    limits = _limits(payload, wire)
    rows = parse_rows(payload["inputs"], wire.rules, with_booleans=may_hold_booleans(body))
    return PredictCall(rows, limits, limits.k, limits.needs_scores)


def parse_embed_call(
    payload: dict[str, Any], body: bytes, wire: ModelWire, *, as_bytes: bool
) -> EmbedCall:
    """Check the rows of a request for embeddings."""
    rows = parse_rows(payload["inputs"], wire.rules, with_booleans=may_hold_booleans(body))
    return EmbedCall(rows, as_bytes)


def call_of(fields: dict[str, Any], rows: Rows, wire: ModelWire) -> PredictCall:
    """A call whose rows were read and checked before, with the other fields of its request."""
    limits = _limits(fields, wire)
    return PredictCall(rows, limits, limits.k, limits.needs_scores)


def _limits(fields: dict[str, Any], wire: ModelWire) -> Limits:
    """What a request asks for; checked once for all requests that ask the same."""
    top_k, threshold, mask = fields.get("top_k"), fields.get("threshold"), fields.get("mask")
    # Their types belong to what was asked: 1, 1.0 and true are one key otherwise.
    asked = (top_k, threshold, mask, type(top_k), type(threshold))
    try:
        return wire.limits[asked]
    except (KeyError, TypeError):  # not asked before, or a list that cannot be a key
        limits = _checked_limits(top_k, threshold, mask, wire)
    if len(wire.limits) >= MOST_LIMITS:
        wire.limits.clear()
    wire.limits[asked] = limits
    return limits


def _checked_limits(top_k: object, threshold: object, mask: object, wire: ModelWire) -> Limits:
    if wire.rules.kind == "words":
        return _span_limits(top_k, threshold, mask, wire)
    reached = _threshold(threshold, wire)
    form = _mask(mask, top_k, wire)
    if form is not None:
        reached = MASK_THRESHOLD if reached is None else reached
        return Limits(None, reached, needs_scores=True, k=1, mask=form)
    most = _top_k(top_k, wire.label_count)
    if most is None and reached is None:
        most = min(DEFAULT_TOP_K, wire.label_count)
    if reached is not None and (most is None or reached.ndim == 1):
        return Limits(most, reached, needs_scores=True, k=1)
    assert most is not None  # noqa: S101 - it is needed only with a threshold
    return Limits(most, reached, needs_scores=False, k=most)


def _span_limits(top_k: object, threshold: object, mask: object, wire: ModelWire) -> Limits:
    """What may be asked of a model of words: a number as the threshold, and nothing else."""
    for name, value in (("top_k", top_k), ("mask", mask)):
        if value is not None:
            raise InvalidInputError(f'this model answers with spans: leave "{name}" out')
    threshold = 0 if threshold is None else threshold
    if type(threshold) not in (int, float) or not 0 <= threshold <= 1:  # type: ignore[operator]
        raise InvalidInputError(
            f'"threshold" of a model that answers with spans must be a number from 0 to 1, got '
            f"{_shown(threshold)}"
        )
    lowest = np.float32(threshold)  # type: ignore[arg-type]
    return Limits(None, lowest, needs_scores=wire.rules.constrained, k=1)


def _mask(value: object, top_k: object, wire: ModelWire) -> str | None:
    """How a model of images is to answer; None for all other models."""
    if wire.rules.image is None:
        if value is not None:
            raise InvalidInputError('"mask" is for models of images: leave it out')
        return None
    if top_k is not None:
        raise InvalidInputError('this model answers with masks: leave "top_k" out')
    if value is None:
        return FORMATS[0]
    if value not in FORMATS:
        raise InvalidInputError(
            f'"mask" must be {" or ".join(map(json.dumps, FORMATS))}, got {_shown(value)}'
        )
    return str(value)


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
    vectors = np.ascontiguousarray(embedded.vectors)
    text = orjson.dumps(vectors, option=orjson.OPT_SERIALIZE_NUMPY)
    return _whole(b"embeddings", text, wire, request_id, latency)


def answer(
    call: PredictCall, finished: Finished, wire: ModelWire, request_id: str, latency: Latency
) -> bytes:
    """The body of a 200 answer."""
    scored, start, end = finished[:3]
    assert isinstance(scored, Scored)  # noqa: S101 - a batcher answers calls of one kind
    if call.limits.mask is not None:
        text = _masks(call.limits, scored.rows(start, end), wire)
    elif isinstance(call.rows, WordRows):
        text = _spans(call.limits, call.rows, scored.rows(start, end), wire)
    elif call.needs_scores:
        text = _above_threshold(call.limits, scored.rows(start, end), wire)
    else:
        text = _best(call.limits, scored, start, end, wire)
    return _whole(b"predictions", text, wire, request_id, latency)


def _whole(name: bytes, text: bytes, wire: ModelWire, request_id: str, latency: Latency) -> bytes:
    """Put together by hand: a JSON library would go through all of it again."""
    queue, inference, total = latency
    return (
        b'{"model":%b,"%b":%b,"latency_ms":{"queue":%b,"inference":%b,"total":%b},"request_id":%b}'
        % (
            wire.head,
            name,
            text,
            _milliseconds(int(queue * 1e6 + 0.5)),
            _milliseconds(int(inference * 1e6 + 0.5)),
            _milliseconds(int(total * 1e6 + 0.5)),
            orjson.dumps(request_id),
        )
    )


@lru_cache(maxsize=4096)
def _milliseconds(microseconds: int) -> bytes:
    return orjson.dumps(microseconds / 1e3)


def _masks(limits: Limits, scored: Scored, wire: ModelWire) -> bytes:
    size, form = wire.rules.image, limits.mask
    assert size is not None and form is not None  # noqa: S101, PT018 - see `_mask`
    assert scored.scores is not None  # noqa: S101 - see `needs_scores`
    assert limits.threshold is not None  # noqa: S101 - see `_checked_limits`
    return orjson.dumps(list(mask_answers(scored.scores, limits.threshold, size, form)))


def _spans(limits: Limits, rows: WordRows, scored: Scored, wire: ModelWire) -> bytes:
    assert limits.threshold is not None  # noqa: S101 - see `_span_limits`
    columns, scores = scored.top_labels % len(wire.labels), scored.top_scores
    if scored.scores is not None:
        columns, scores = constrained_words(rows.rows, scored.scores, wire.labels)
    found = span_answers(rows.rows, columns, scores, wire.labels, float(limits.threshold))
    return orjson.dumps(list(found))


def _best(limits: Limits, scored: Scored, start: int, end: int, wire: ModelWire) -> bytes:
    """The graph's ranking, cut to this call's k: the batch may have been run with a larger one."""
    text_of, ranked = wire.label_texts.__getitem__, scored.texts()[start:end]
    if limits.threshold is not None or scored.top_labels.shape[1] != limits.k:
        ranked = [
            _cut(limits, best, *row)
            for best, row in zip(scored.top_scores[start:end], ranked, strict=True)
        ]
    rows = [
        b",".join(map(text_of, columns)) + b'],"scores":[' + scores for columns, scores in ranked
    ]
    return b'[{"labels":[%b]}]' % b']},{"labels":['.join(rows)


def _cut(
    limits: Limits, best: NDArray[np.float32], columns: list[int], scores: bytes
) -> tuple[list[int], bytes]:
    """The beginning of a ranking that this call asks for."""
    count = limits.k
    if limits.threshold is not None:
        count = int(np.count_nonzero(best[:count] >= limits.threshold))
    return columns[:count], b",".join(scores.split(b",")[:count])


def _above_threshold(limits: Limits, scored: Scored, wire: ModelWire) -> bytes:
    assert scored.scores is not None  # noqa: S101 - the batcher asks for what `needs_scores` says
    rows = []
    for scores in scored.scores:
        labels = np.flatnonzero(scores >= limits.threshold)
        # Stable, so that equal scores keep the order of their columns as in the graph's ranking.
        order = labels[np.argsort(-scores[labels], kind="stable")][: limits.top_k]
        names = [wire.labels[label] for label in order.tolist()]
        rows.append({"labels": names, "scores": scores[order]})
    # Writes float32 with as few digits as tell it from its neighbours.
    return orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)
