"""Many connections that each send the next request when the last is answered, every answer read.

What `wrk` does, but each answer is looked at: its status, and whether it is right.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

LENGTH = b"content-length: "
END = b"\r\n\r\n"

Check = Callable[[int, bytes], bool]
"""Number of a request and the body of its answer -> whether it is right."""


@dataclass
class Seen:
    """What came back."""

    statuses: Counter[int] = field(default_factory=Counter)
    milliseconds: list[float] = field(default_factory=list)
    """Of those with predictions."""
    wrong: int = 0
    broken: int = 0
    """Connections that ended before their answer."""
    seconds: float = 0.0

    @property
    def p50(self) -> float:
        """Milliseconds within which half of the predictions came."""
        return statistics.median(self.milliseconds)

    @property
    def p99(self) -> float:
        """Milliseconds within which 99 % of the predictions came."""
        return sorted(self.milliseconds)[int(0.99 * (len(self.milliseconds) - 1))]

    @property
    def rate(self) -> float:
        """Predictions a second."""
        return self.statuses[200] / self.seconds


def posted(body: bytes, path: str = "/predict") -> bytes:
    """A request as it goes over the wire."""
    head = f"POST {path} HTTP/1.1\r\nhost: server\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


class Connection:
    """One of them."""

    def __init__(self, port: int, first: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = first
        self.received = b""
        self.begun = 0.0

    def send(self, requests: Sequence[bytes]) -> None:
        """Send the request whose turn it is."""
        self.begun = time.perf_counter()
        self.socket.sendall(requests[self.number])

    def answer(self) -> tuple[int, bytes] | None:
        """Status and body, once all of it is there."""
        self.received += self.socket.recv(2**16)
        end = self.received.find(END)
        if end < 0:
            return None
        start = self.received.index(LENGTH) + len(LENGTH)
        length = int(self.received[start : self.received.index(b"\r", start)])
        if len(self.received) < end + len(END) + length:
            return None
        status, body = int(self.received[9:12]), self.received[end + len(END) :]
        self.received = b""
        return status, body


def load(
    port: int,
    requests: Sequence[bytes],
    count: int,
    is_over: Callable[[Seen], bool],
    check: Check | None = None,
) -> Seen:
    """Keep `count` connections busy until it is over."""
    seen = Seen()
    with selectors.DefaultSelector() as selector:
        for number in range(count):
            connection = Connection(port, number % len(requests))
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send(requests)
        begun = time.perf_counter()
        while not is_over(seen):
            for key, _ in selector.select(1.0):
                _one_answer(key.data, requests, seen, check)
            seen.seconds = time.perf_counter() - begun
        for key in list(selector.get_map().values()):
            key.data.socket.close()
    return seen


def _one_answer(
    connection: Connection, requests: Sequence[bytes], seen: Seen, check: Check | None
) -> None:
    answer = connection.answer()
    if answer is None:
        return
    status, body = answer
    seen.statuses[status] += 1
    if status == 200:
        seen.milliseconds.append((time.perf_counter() - connection.begun) * 1e3)
        if check is not None and not check(connection.number, body):
            seen.wrong += 1
    connection.number = (connection.number + 7) % len(requests)
    connection.send(requests)
