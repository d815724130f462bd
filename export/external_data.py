"""Which files and sets of operators an ONNX graph uses, told without the `onnx` package.

A server must know before ONNX Runtime opens them. Only the few fields of the format on the way to
`external_data` and to `domain` are followed; everything else, the numbers above all, is skipped
unread.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LENGTH_DELIMITED = 2
FIXED_SIZES = {1: 8, 5: 4}
# From message to the numbers of its fields that may lead to external data, as onnx.proto has them.
FOLLOWED = {
    "model": {7: "graph", 8: "opset", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 9: "opset", 10: "domain"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute", 7: "domain"},
    "opset": {1: "domain"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
KEY, VALUE = 1, 2
LONGEST_VARINT = 10


@dataclass(frozen=True)
class Uses:
    """What a graph needs from outside of itself."""

    locations: set[str] = field(default_factory=set)
    """Names of the files that hold numbers of it, as the graph has them."""
    domains: set[str] = field(default_factory=set)
    """Sets of operators; that of ONNX is the empty one."""


def uses_of(path: Path) -> Uses:
    """What a graph uses.

    Raises:
        ValueError: It is no ONNX file.
    """
    uses = Uses()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        try:
            _follow(whole, 0, len(whole), "model", uses)
        except (IndexError, ValueError, RecursionError) as error:
            raise ValueError(f"{path.name} is no ONNX graph") from error
    return uses


def _follow(data: mmap.mmap, start: int, end: int, message: str, uses: Uses) -> None:
    for number, begin, stop in _fields(data, start, end):
        inner = FOLLOWED[message].get(number)
        if inner == "entry":
            entry = {n: data[a:b].decode() for n, a, b in _fields(data, begin, stop)}
            if entry.get(KEY) == "location":
                uses.locations.add(entry.get(VALUE, ""))
        elif inner == "domain":
            uses.domains.add(data[begin:stop].decode())
        elif inner is not None:
            _follow(data, begin, stop, inner, uses)


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
    value = 0
    for place in range(LONGEST_VARINT):
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number that is too long")
