"""Header blocks that were seen before: a client sends the same one with almost every request.

What the parser and the checks made of a block they would make of it again, so the next request that
begins with the same bytes needs neither.
"""

from __future__ import annotations

from typing import NamedTuple

from serve.exchange import Headers, Target

END = b"\r\n\r\n"
MOST_BYTES = 1024
"""Longer blocks are not remembered."""
MOST_HEADS = 1024
# Those that differ from request to request, or mean more than that the body follows.
NEVER = frozenset(
    (b"x-request-id", b"x-timeout-ms", b"transfer-encoding", b"expect", b"connection", b"upgrade")
)


class Head(NamedTuple):
    """A block that was admitted, of a request that keeps its connection open."""

    target: Target
    headers: Headers
    length: int
    """Bytes of the body."""


class KnownHeads:
    """The blocks of one process, by their bytes."""

    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}

    def split(self, data: bytes) -> tuple[Head, bytes] | None:
        """A request that is known up to its body, and what of that there is; else None.

        None, too, where more follows than its body.
        """
        end = data.find(END, 0, MOST_BYTES) + len(END)
        head = self._heads.get(data[:end])
        if head is None or len(data) - end > head.length:
            return None
        return head, data[end:]

    def learn(self, data: bytes, target: Target, headers: Headers) -> None:
        """Remember the block of a request that was admitted and that `data` is, or begins."""
        end = data.find(END, 0, MOST_BYTES) + len(END)
        length = headers.get(b"content-length", b"")
        if end < len(END) or not length.isdigit() or int(length) < len(data) - end:
            return
        if NEVER.isdisjoint(headers):
            if len(self._heads) >= MOST_HEADS:
                self._heads.clear()
            self._heads[data[:end]] = Head(target, headers, int(length))
