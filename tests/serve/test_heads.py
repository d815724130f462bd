"""Known header blocks: the short cut must never be taken for anything but the very same request."""

from __future__ import annotations

import pytest

from serve.heads import MOST_BYTES, MOST_HEADS, KnownHeads
from serve.routes import find_target

TARGET = find_target(b"/predict")
BLOCK = b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n"


def headers(length):
    return {b"host": b"a", b"content-length": b"%d" % length}


@pytest.mark.parametrize("begun", [b"abc", b"a", b""])
def test_only_the_same_block_is_known_with_nothing_after_the_body(begun):
    heads, block = KnownHeads(), BLOCK % 3
    heads.learn(block + begun, TARGET, headers(3))
    for body in (b"xyz", b"x", b""):
        head, found = heads.split(block + body)
        assert (head.target, head.headers, head.length, found) == (TARGET, headers(3), 3, body)
    for other in (block + b"xyzz", b"", block[:-2], BLOCK % 4 + b"abcd"):
        assert heads.split(other) is None


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (BLOCK % 3 + b"abcd", headers(3)),  # another request follows
        (BLOCK % 3 + b"abc", {b"host": b"a"}),
        (BLOCK % 3 + b"abc", headers(3) | {b"transfer-encoding": b"chunked"}),
        (BLOCK % 3 + b"abc", headers(3) | {b"x-request-id": b"1"}),
        (BLOCK % 3 + b"abc", headers(3) | {b"x-timeout-ms": b"1"}),
        (BLOCK % 3 + b"abc", headers(3) | {b"connection": b"close"}),
        (b"x" * MOST_BYTES + BLOCK % 3 + b"abc", headers(3)),
    ],
)
def test_odd_requests_are_not_remembered(data, names):
    heads = KnownHeads()
    heads.learn(data, TARGET, names)
    assert heads.split(data) is None


def test_memory_of_blocks_is_bounded():
    heads = KnownHeads()
    for number in range(3 * MOST_HEADS):
        block = b"POST /predict HTTP/1.1\r\nx: %d\r\ncontent-length: 1\r\n\r\n" % number
        heads.learn(block + b"a", TARGET, headers(1))
        assert heads.split(block + b"a") is not None
    assert len(heads._heads) <= MOST_HEADS
