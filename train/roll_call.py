"""Who of several training processes is still there, asked when one of them does not answer."""

from __future__ import annotations

import os
import socket
import time

from torch.distributed.distributed_c10d import Store

PATIENCE = 3.0
"""Seconds for the others to notice, too, that somebody is missing."""


class RollCall:
    """Notes that processes leave for each other in torchrun's store, which outlives them."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size
        self.store.set(f"process/{rank}", f"{socket.gethostname()} {os.getpid()}")

    def missing(self) -> str:
        """What became of the processes that do not answer, as far as this one can tell."""
        gone = self._gone()
        if not gone:
            return f"a message to the other {self.size - 1} of {self.size} processes failed"
        who, were = ("rank", "was") if len(gone) == 1 else ("ranks", "were")
        return f"{who} {', '.join(map(str, gone))} of {self.size} {were} lost"

    def tells(self, kind: str) -> bool:
        """Whether to tell the user about a mistake: unless a lower rank tells of the same kind."""
        try:
            self.store.set(f"mistake/{self.rank}", kind)
            deadline = time.monotonic() + PATIENCE
            lower = set(range(self.rank))
            while lower and time.monotonic() < deadline:
                lower -= {rank for rank in lower if self._runs(rank) is False}
                told = {r for r in lower if self.store.check([f"mistake/{r}"])}
                if any(self.store.get(f"mistake/{r}") == kind.encode() for r in told):
                    return False
                lower -= told
                time.sleep(0.1)
        except RuntimeError:  # the store went with torchrun
            return self.rank == 0
        return True

    def _gone(self) -> list[int]:
        """Ranks that neither noticed that somebody is missing nor can be seen to run."""
        try:
            self.store.set(f"noticed/{self.rank}", "")
            others = [rank for rank in range(self.size) if rank != self.rank]
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                quiet = [r for r in others if not self.store.check([f"noticed/{r}"])]
                gone = [rank for rank in quiet if not self._runs(rank)]
                if gone == quiet:
                    break
                time.sleep(0.1)
        except RuntimeError:  # the store went with torchrun
            return []
        return gone

    def _runs(self, rank: int) -> bool | None:
        """Whether its process still runs; None where that cannot be seen, on another machine."""
        host, pid = self.store.get(f"process/{rank}").decode().split()
        if host != socket.gethostname():
            return None
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return False
        return True
