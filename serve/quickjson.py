"""The usual JSON body, numbers straight into an array; anything odd is left to `serve.api`.

No Python number is made for any of the values, which is most of the cost of a JSON body.
"""

from __future__ import annotations

import json
import secrets
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
import simdjson

from serve.rows import Features, squares

# One is enough: bodies are parsed in the event loop, and no document outlives `quick_payload`.
_PARSER = simdjson.Parser()
# The sum of squares of all values stays below it, so each of them is finite in float32.
FINITE_SQUARES = 1e76
# Bytes before and after the rows of a usual body.
MOST_AROUND = 256
# For the rows, in what is around them; nobody can know it and send it.
STAND_IN = secrets.token_hex(16)


def quick_payload(body: bytes) -> tuple[dict[str, Any], Features] | None:
    """The fields of a body other than `inputs`, and its dense rows (rows, width).

    None if the body is anything but an object whose `inputs` are equally long lists of numbers; why
    that is, and whether it is a mistake at all, is for the slow way to find out.
    """
    start, end = body.find(b"["), body.rfind(b"]") + 1
    if not 0 < start <= MOST_AROUND or len(body) - end > MOST_AROUND:
        return None
    fields = _fields_around(body[:start], body[end:])
    if fields is None:
        return None
    try:
        rows: Any = _PARSER.parse(body[start:end])
        features = _rows(rows, body, start)
    except (ValueError, TypeError, RuntimeError):
        return None
    return None if features is None else (fields, features)


@lru_cache(maxsize=1024)
def _fields_around(before: bytes, after: bytes) -> dict[str, Any] | None:
    """The fields of a body but for `inputs`, whose value stands between the two texts.

    Most requests of a client have the same, so that they are read once. None where they are odd.
    """
    text = before + f'"{STAND_IN}"'.encode() + after
    objects: list[list[tuple[str, Any]]] = []
    try:
        orjson.loads(text)  # which is the stricter of the two
        json.loads(text, object_pairs_hook=objects.append)
    except (ValueError, RecursionError):
        return None
    if len(objects) != 1:
        return None
    fields = dict(objects[0])
    # Of a field that comes twice parsers take the first or the last.
    if len(fields) != len(objects[0]) or fields.pop("inputs", None) != STAND_IN:
        return None
    return None if any(isinstance(value, list) for value in fields.values()) else fields


def _rows(rows: Any, body: bytes, start: int) -> Features | None:  # noqa: ANN401 - simdjson has no types
    count = len(rows)
    width = len(rows[0]) if count else 0
    if count > 1 and any(len(row) != width for row in rows):
        return None
    # Brackets inside a row would be flattened without a word; one pair for each row is expected.
    if not width or _has_more_brackets(body, start, count):
        return None
    flat = np.frombuffer(rows.as_buffer(of_type="d"), dtype=np.float64)
    if not squares(flat) < FINITE_SQUARES:
        return None
    return flat.astype(np.float32).reshape(count, width)


def _has_more_brackets(body: bytes, place: int, expected: int) -> bool:
    """Whether `[` comes more often; `bytes.count` goes byte by byte and takes ten times as long."""
    for _ in range(expected):
        place = body.find(b"[", place + 1)
    return body.find(b"[", place + 1) >= 0


def quick_tensors(body: bytes) -> dict[str, Any] | None:
    """A body of the Open Inference Protocol, with the `data` of its inputs as arrays (numbers,).

    Lists of numbers however deep become flat float64 arrays, other data and all other fields stay
    as they are. None if the body is not such an object.
    """
    try:
        document = _PARSER.parse(body)
        if type(document) is not simdjson.Object:
            return None
        inputs: Any = document["inputs"]
        fields = {name: _plain(document[name]) for name in document if name != "inputs"}
        fields["inputs"] = [
            {
                name: _flat(tensor[name]) if name == "data" else _plain(tensor[name])
                for name in tensor
            }
            for tensor in inputs
        ]
    except (ValueError, TypeError, KeyError, RuntimeError):
        return None
    return fields


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if type(value) is simdjson.Array:
        return value.as_list()
    return value.as_dict() if type(value) is simdjson.Object else value


def _flat(value: Any) -> Any:  # noqa: ANN401 - any JSON
    try:
        return np.frombuffer(value.as_buffer(of_type="d"), dtype=np.float64)
    except (TypeError, AttributeError):
        return _plain(value)
