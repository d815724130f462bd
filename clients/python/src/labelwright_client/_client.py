"""`Client` and `AsyncClient`: two thin shells that send, and sleep, as `_protocol` says."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from random import Random, SystemRandom
from types import TracebackType
from typing import Any, Self, SupportsIndex, TypeVar
from uuid import uuid4

import httpx

from labelwright_client import _protocol as protocol
from labelwright_client._errors import ClientError
from labelwright_client._protocol import Call, Threshold
from labelwright_client._rows import Rows
from labelwright_client._types import Embeddings, ModelInfo, Predictions

T = TypeVar("T")


class _Shell:
    """What does not depend on being synchronous: options, and the calls themselves."""

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


class Client(_Shell):
    """A connection pool to one server; make one and share it, threads included.

    Args:
        base_url: Address of the server; if None, LABELWRIGHT_URL, else http://127.0.0.1:8000.
        api_key: What the server wants to be shown; if None, LABELWRIGHT_API_KEY, if that is set.
        timeout: Seconds, for each attempt, to connect, to send, and to wait for the next bytes.
        max_retries: Attempts after the first, on a broken connection, 429 or 503 only.
        transport: An httpx transport in place of the network, for tests.
        sleep: How to wait between attempts, for tests.
        clock: Seconds that only go forward, for tests.
        rng: Source of the jitter, for tests.

    A request that fails raises a ClientError of the tree in `_errors`.
    """

    def __init__(  # noqa: PLR0913 - each has its default
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 5.0,
        max_retries: int = 2,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
    ) -> None:
        super().__init__(base_url, api_key, timeout, max_retries, rng)
        self._sleep = sleep
        self._clock = clock
        self._http = httpx.Client(transport=transport, **self._options)

    def predict(
        self,
        rows: Rows,
        *,
        top_k: SupportsIndex | None = None,
        threshold: Threshold | None = None,
        model: str | None = None,
    ) -> Predictions:
        """Predict the labels of each row.

        Args:
            rows: Lists of numbers, {index: value} dicts, texts, a 2-D array or a sparse matrix.
            top_k: At most so many labels a row.
            threshold: Only labels that score at least this; "tuned" and "per-label" ask for the
                values chosen when the model was trained.
            model: Name of the model, needed if the server has several.
        """
        return self._run(
            protocol.predict_call(
                rows, top_k=top_k, threshold=threshold, model=model, request_id=uuid4().hex
            )
        )

    def embed(self, rows: Rows, *, model: str | None = None) -> Embeddings:
        """Turn each row into the vector that its scores are the inner products of, with labels.

        Args:
            rows: As for `predict`.
            model: Name of the model, needed if the server has several.
        """
        return self._run(protocol.embed_call(rows, model=model, request_id=uuid4().hex))

    def models(self) -> list[ModelInfo]:
        """Describe every model the server has loaded."""
        return self._run(protocol.models_call(uuid4().hex))

    def model(self, name: str) -> ModelInfo:
        """Describe one model; an unknown name is an InvalidInput with status 404."""
        return self._run(protocol.model_call(name, uuid4().hex))

    def is_ready(self) -> bool:
        """Ask once whether the server takes predictions now; an unreachable one does not."""
        return self._not_ready() is None

    def wait_until_ready(self, timeout: float = 30.0) -> None:
        """Return once the server is ready; RequestTimedOut after `timeout` and one last look."""
        deadline = self._clock() + timeout
        while (reason := self._not_ready()) is not None:
            self._sleep(protocol.poll_delay(reason, timeout, deadline - self._clock()))

    def _not_ready(self) -> ClientError | None:
        try:
            self._once(protocol.ready_call(uuid4().hex))
        except ClientError as error:
            if not protocol.is_not_ready(error):
                raise
            return error
        return None

    def _run(self, call: Call[T]) -> T:
        attempt = 0
        while True:
            try:
                return self._once(call)
            except ClientError as error:
                delay = self._delay(error, attempt)
            self._sleep(delay)
            attempt += 1

    def _once(self, call: Call[T]) -> T:
        try:
            response = self._http.request(
                call.method, call.path, content=call.content, headers=call.headers
            )
        except httpx.RequestError as error:
            raise protocol.transport_error(error, call, self._timeout) from error
        return protocol.read_answer(call, response)

    def close(self) -> None:
        """Close the connections; the client cannot be used after."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClient(_Shell):
    """The same for asyncio: same options, same methods to await, same errors.

    To run under trio, pass `sleep=trio.sleep`.
    """

    def __init__(  # noqa: PLR0913 - each has its default
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 5.0,
        max_retries: int = 2,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
    ) -> None:
        super().__init__(base_url, api_key, timeout, max_retries, rng)
        self._sleep = sleep
        self._clock = clock
        self._http = httpx.AsyncClient(transport=transport, **self._options)

    async def predict(
        self,
        rows: Rows,
        *,
        top_k: SupportsIndex | None = None,
        threshold: Threshold | None = None,
        model: str | None = None,
    ) -> Predictions:
        """Predict the labels of each row, as `Client.predict` does."""
        return await self._run(
            protocol.predict_call(
                rows, top_k=top_k, threshold=threshold, model=model, request_id=uuid4().hex
            )
        )

    async def embed(self, rows: Rows, *, model: str | None = None) -> Embeddings:
        """Turn each row into a vector, as `Client.embed` does."""
        return await self._run(protocol.embed_call(rows, model=model, request_id=uuid4().hex))

    async def models(self) -> list[ModelInfo]:
        """Describe every model the server has loaded."""
        return await self._run(protocol.models_call(uuid4().hex))

    async def model(self, name: str) -> ModelInfo:
        """Describe one model; an unknown name is an InvalidInput with status 404."""
        return await self._run(protocol.model_call(name, uuid4().hex))

    async def is_ready(self) -> bool:
        """Ask once whether the server takes predictions now; an unreachable one does not."""
        return await self._not_ready() is None

    async def wait_until_ready(self, timeout: float = 30.0) -> None:
        """Return once the server is ready; RequestTimedOut after `timeout` and one last look."""
        deadline = self._clock() + timeout
        while (reason := await self._not_ready()) is not None:
            await self._sleep(protocol.poll_delay(reason, timeout, deadline - self._clock()))

    async def _not_ready(self) -> ClientError | None:
        try:
            await self._once(protocol.ready_call(uuid4().hex))
        except ClientError as error:
            if not protocol.is_not_ready(error):
                raise
            return error
        return None

    async def _run(self, call: Call[T]) -> T:
        attempt = 0
        while True:
            try:
                return await self._once(call)
            except ClientError as error:
                delay = self._delay(error, attempt)
            await self._sleep(delay)
            attempt += 1

    async def _once(self, call: Call[T]) -> T:
        try:
            response = await self._http.request(
                call.method, call.path, content=call.content, headers=call.headers
            )
        except httpx.RequestError as error:
            raise protocol.transport_error(error, call, self._timeout) from error
        return protocol.read_answer(call, response)

    async def aclose(self) -> None:
        """Close the connections; the client cannot be used after."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
