"""Random requests, each made by its seed alone: bodies, arrays, packings, heads, garbage.

A case that found a bug is named by its seed in test_fuzz.py. `LABELWRIGHT_FUZZ=n` makes the tests
that draw go n times as far.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import zlib
from typing import Any

import numpy as np

from serve.bodies import unpacked
from serve.errors import ApiError
from serve.exchange import Exchange
from serve.routes import find_target

SCALE = int(os.environ.get("LABELWRIGHT_FUZZ", "1"))
WIDTH = 6
NUMBERS = (
    *("0", "-0", "1", "-1.5", "1e999", "-1e999", "1e38", "3.5e38", "1e-400", "5e-324"),
    *("9223372036854775808", "18446744073709551616", "1" * 400, "1.0000000000000000000001"),
    *("01", "+1", ".5", "1.", "NaN", "Infinity", "-Infinity", "0x10", "1_0", "1e", "--1"),
)
OTHERS = ("true", "false", "null", '"1"', '"text"', '"\\ud800"', '"\\u0000"', "{}", "[]", '"é"', "")
FIELDS = (
    *('"inputs"', '"inputs"', '"inp\\u0075ts"', '"top_k"', '"threshold"', '"model"', '"input"'),
    *('""', '"inputs "', "inputs", '"\\ud83d\\ude00"', '"tuned"', '"Model"'),
)
HEADS = (b"GET", b"POST", b"PUT", b"", b"P" * 100, b"\xff\xfe", b"PRI * HTTP/2.0")


def number(rng: random.Random) -> str:
    if rng.random() < 0.985:
        return repr(rng.choice([rng.uniform(-3, 3), rng.randint(-5, 5), rng.gauss(0, 1e30)]))
    return rng.choice(NUMBERS)


def row(rng: random.Random) -> str:
    width = WIDTH if rng.random() < 0.95 else rng.choice([0, 1, 5, 7, 60])
    if rng.random() < 0.08:
        keys = [
            f'"{rng.choice([rng.randint(0, 8), "03", "-1", "x", "1e1", "٣", 10**30])}"'
            for _ in range(rng.randint(0, 4))
        ]
        return "{" + ",".join(f"{key}:{number(rng)}" for key in keys) + "}"
    cells = [number(rng) for _ in range(width)]
    if cells and rng.random() < 0.05:
        cells[rng.randrange(len(cells))] = rng.choice([*OTHERS, "[1]", "[[1,2]]"])
    return "[" + ",".join(cells) + "]"


def value(rng: random.Random) -> str:
    return rng.choice(
        [
            lambda: rng.choice(OTHERS),
            lambda: number(rng),
            lambda: row(rng),
            lambda: "[" * (depth := rng.choice([3, 60, 1100, 5000])) + "]" * depth,
            lambda: '"tiny"',
            lambda: '"per-label"',
            lambda: '"tuned"',
        ]
    )()


def json_body(rng: random.Random) -> bytes:
    """An object that is nearly a request, or is one."""
    rows = [row(rng) for _ in range(rng.choice([0, 1, 1, 2, 3, 9]))]
    pairs = [f'"inputs":[{",".join(rows)}]']
    while rng.random() < 0.35:
        field = rng.choice(FIELDS)
        pairs.insert(rng.randrange(len(pairs) + 1), f"{field}:{value(rng)}")
    space = rng.choice(["", "", " ", "\n\t"])
    text = "{" + space + f",{space}".join(pairs) + space + "}"
    body = text.encode("utf-8", "surrogatepass")
    return mutated(body, rng) if rng.random() < 0.2 else body


def mutated(body: bytes, rng: random.Random) -> bytes:
    """The same bytes with a few cut, put in, doubled or changed."""
    for _ in range(rng.randint(1, 3)):
        at, end = sorted(rng.randint(0, len(body)) for _ in range(2))
        end = min(end, at + rng.choice([1, 2, 30]))
        middle = rng.choice(
            [
                b"",
                body[at:end] * 2,
                bytes(rng.randrange(256) for _ in range(3)),
                b"\xff",
                b"[",
                b"]",
            ]
        )
        body = body[:at] + middle + body[end:]
    return body


def npy_body(rng: random.Random) -> bytes:
    rows = rng.choice([1, 2, 3])
    shapes = [
        "({0}, 6)",
        "(6,)",
        "({0}, 6.0)",
        "({0}.0, 6)",
        "('a', 6)",
        "(-{0}, -6)",
        "None",
        "()",
    ]
    shape = rng.choice([shapes[0]] * 6 + shapes).format(rows)
    kind = rng.choice(["'<f4'"] * 5 + ["'<f8'", "'|O'", "['<f4']", "{}", "'<i4'", "0"])
    order = rng.choice(["False"] * 5 + ["True", "None", "1"])
    header = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    body += rng.randbytes(4 * 6 * rows) if rng.random() < 0.3 else bytes(4 * 6 * rows)
    return mutated(body, rng) if rng.random() < 0.3 else body


def request_case(seed: int) -> tuple[dict[bytes, bytes], bytes]:
    """Headers and body of one POST to /predict."""
    rng = random.Random(seed)  # noqa: S311 - repeatable is what it has to be
    headers: dict[bytes, bytes] = {}
    kind = rng.random()
    if kind < 0.8:
        body = json_body(rng)
        if rng.random() < 0.3:
            headers[b"content-type"] = b"application/json"
    elif kind < 0.9:
        headers[b"content-type"] = b"application/x-npy"
        body = npy_body(rng)
    else:
        headers[b"content-type"] = b"application/octet-stream"
        body = rng.randbytes(rng.choice([0, 24, 48, 23]))
    if rng.random() < 0.05:
        headers[b"content-encoding"] = rng.choice([b"gzip", b"deflate", b"br", b"identity"])
        body = rng.choice([gzip.compress, zlib.compress, bytes])(body)
        body = mutated(body, rng) if rng.random() < 0.3 else body
    if rng.random() < 0.03:
        headers[b"x-timeout-ms"] = rng.choice([b"1", b"-1", b"nan", b"1e999", b"x", b"5000"])
    return headers, body


def garbage_case(seed: int) -> bytes:
    """Bytes for one connection that are hardly HTTP."""
    rng = random.Random(seed)  # noqa: S311
    parts = []
    for _ in range(rng.randint(1, 4)):
        length = rng.choice([b"0", b"5", b"-1", b"99999999999999999999", b"x", b"5, 5"])
        head = b"%b %b HTTP/%b\r\nhost: x\r\n%b: %b\r\n\r\n" % (
            rng.choice(HEADS),
            rng.choice([b"/predict", b"/%00", b"/\xff", b"*", b"http://[", b"/" + b"a" * 3000]),
            rng.choice([b"1.1", b"1.0", b"0.9", b"2.0", b"x"]),
            rng.choice([b"content-length", b"transfer-encoding", b"expect", b"\x00", b"upgrade"]),
            rng.choice([length, b"chunked", b"100-continue", b"websocket"]),
        )
        parts.append(rng.choice([head, mutated(head, rng), rng.randbytes(50), b"\r\n\r\n"]))
        parts.append(rng.choice([b"", b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffff\r\n", b"{}"]))
    return b"".join(parts)


def refuse_constant(word: str) -> float:
    raise ValueError(word)


def reference_rows(body: bytes) -> tuple[list[list[Any]], bool] | None:
    """The dense rows of a body by Python's own parser, and whether there is nothing but them.

    None where it holds anything else.
    """
    try:
        payload = json.loads(body.decode("utf-8"), parse_constant=refuse_constant)
        rows = payload["inputs"]
        is_dense = all(
            type(one) is list and all(type(cell) in (int, float) for cell in one) for one in rows
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (rows, body.count(b":") == 1) if is_dense and type(rows) is list else None


def parsed(headers: dict[bytes, bytes], body: bytes, models: Any) -> tuple[bytes, Any]:
    """What a server makes of a request: rows, or the refusal."""
    target = find_target(b"/predict")
    exchange = Exchange(target, headers, "id", 0.0)
    try:
        target.route.admit(headers)
        encoding = headers.get(b"content-encoding")
        plain = body if encoding is None else unpacked(body, encoding, 2**20)
        return plain, target.route.parse(exchange, plain, models)
    except ApiError as error:
        return body, error


def is_good(rows: list[list[Any]]) -> bool:
    largest = float(np.finfo(np.float32).max)
    fits = all(len(row) == WIDTH and all(abs(cell) <= largest for cell in row) for row in rows)
    return bool(rows) and fits


def check_body(headers: dict[bytes, bytes], body: bytes, models: Any, case: object) -> None:
    """Fail unless a body is refused in one sentence, or read as Python's own parser reads it."""
    plain, call = parsed(headers, body, models)
    is_json = headers.get(b"content-type", b"application/json") == b"application/json"
    rows, is_alone = (reference_rows(plain) if is_json else None) or (None, False)
    if isinstance(call, ApiError):
        # What is nothing but good rows must not be refused.
        assert not (is_alone and not headers and is_good(rows)), (case, call)
        message = str(call)
        assert 0 < len(message) < 400, case
        assert "\n" not in message, case
        return
    features = call.rows.features
    assert features.dtype == np.float32, case
    assert features.shape[1] == WIDTH, case
    assert np.isfinite(features).all(), case
    if rows is not None:
        assert np.array_equal(features, np.array(rows, np.float64).astype(np.float32)), case
