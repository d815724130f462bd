"""The usual JSON body, numbers straight into an array; anything odd is left to `serve.api`.

No Python number is made for any of the values, which is most of the cost of a JSON body.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import simdjson

from serve.rows import Features

# One is enough: bodies are parsed in the event loop, and no document outlives `quick_payload`.
_PARSER = simdjson.Parser()
# The sum of squares of all values stays below it, so each of them is finite in float32.
FINITE_SQUARES = 1e76


def quick_payload(body: bytes) -> tuple[dict[str, Any], Features] | None:
    """The fields of a body other than `inputs`, and its dense rows (rows, width).

    None if the body is anything but an object whose `inputs` are equally long lists of numbers; why
    that is, and whether it is a mistake at all, is for the slow way to find out.
    """
    fields: dict[str, Any] = {}
    rows, count = None, 0
    try:
        document = _PARSER.parse(body)
        if type(document) is not simdjson.Object:
            return None
        for name in document:  # its `items` would make lists of the rows
            value = document[name]
            count += 1
            if name == "inputs" and type(value) is simdjson.Array:
                rows = value
            elif type(value) in LAZY:
                return None
            else:
                fields[name] = value
        # Of a field that comes twice this parser takes the first and others take the last.
        if rows is None or len(fields) + 1 != count:
            return None
        features = _rows(rows, body)
    except (ValueError, TypeError, RuntimeError):
        return None
    return None if features is None else (fields, features)


LAZY = (simdjson.Object, simdjson.Array)


def _rows(rows: Any, body: bytes) -> Features | None:  # noqa: ANN401 - simdjson has no types
    lengths = {len(row) for row in rows}
    # Brackets inside a row would be flattened without a word; one pair for each row is expected.
    if len(lengths) != 1 or _has_more_brackets(body, len(rows) + 1):
        return None
    flat = np.frombuffer(rows.as_buffer(of_type="d"), dtype=np.float64)
    # Of all ways to see whether every value is small this is the quickest, and `vdot` does not warn
    # of an overflow as `dot` does.
    if not np.vdot(flat, flat) < FINITE_SQUARES:
        return None
    return flat.astype(np.float32).reshape(len(rows), lengths.pop())


def _has_more_brackets(body: bytes, expected: int) -> bool:
    """Whether `[` comes more often; `bytes.count` goes byte by byte and takes ten times as long."""
    place = -1
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
