"""Which files an ONNX graph reads its numbers from, told without the `onnx` package.

A server must know before ONNX Runtime opens them. Only the few fields of the format on the way to
`external_data` are followed; everything else, the numbers above all, is skipped unread.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

LENGTH_DELIMITED = 2
FIXED_SIZES = {1: 8, 5: 4}
# From message to the numbers of its fields that may lead to external data, as onnx.proto has them.
FOLLOWED = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
KEY, VALUE = 1, 2


def locations(path: Path) -> set[str]:
    """Names of the files that hold numbers of a graph, as the graph has them.

    Raises:
        ValueError: It is no ONNX file.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        try:
            return set(_locations(whole, 0, len(whole), "model"))
        except (IndexError, ValueError) as error:
            raise ValueError(f"{path.name} is no ONNX graph") from error


def _locations(data: mmap.mmap, start: int, end: int, message: str) -> Iterator[str]:
    for number, begin, stop in _fields(data, start, end):
        inner = FOLLOWED[message].get(number)
        if inner == "entry":
            entry = {n: data[a:b].decode() for n, a, b in _fields(data, begin, stop)}
            if entry.get(KEY) == "location":
                yield entry.get(VALUE, "")
        elif inner is not None:
            yield from _locations(data, begin, stop, inner)


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each field that has a length."""
    while start < end:
        key, start = _varint(data, start)
        kind = key & 7
        if kind == LENGTH_DELIMITED:
            size, start = _varint(data, start)
            if start + size > end:
                raise ValueError("a field is longer than what it is in")
            yield key >> 3, start, start + size
            start += size
        elif kind == 0:
            _, start = _varint(data, start)
        elif kind in FIXED_SIZES:
            start += FIXED_SIZES[kind]
        else:
            raise ValueError("a kind of field that ONNX does not use")


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
