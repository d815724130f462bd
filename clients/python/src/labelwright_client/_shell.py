"""What does not depend on being synchronous: options of a client, and when to try again."""

from __future__ import annotations

import os
from random import Random, SystemRandom
from typing import Any

from labelwright_client import _protocol as protocol
from labelwright_client._errors import ClientError


class Shell:
    """Options, checked once."""

    def __init__(
        self,
        base_url: str | None,
        api_key: str | None,
        timeout: float,
        max_retries: int,
        rng: Random | None,
    ) -> None:
        protocol.check_options(timeout, max_retries)
        self._timeout = timeout
        self._max_retries = max_retries
        # Not a seeded generator: forked workers would copy its state and all draw the same waits.
        self._rng = rng or SystemRandom()
        self._options: dict[str, Any] = {
            "base_url": protocol.server_url(base_url, os.environ),
            "timeout": timeout,
            "headers": {**protocol.HEADERS, **protocol.key_headers(api_key, os.environ)},
        }

    def _delay(self, error: ClientError, attempt: int) -> float:
        delay = protocol.retry_delay(error, attempt, self._max_retries, self._rng)
        if delay is None:
            raise error
        return delay
