"""`AsyncClient`: what `Client` is, for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, Self, SupportsIndex, TypeVar

import httpx

from labelwright_client import _calls as calls
from labelwright_client import _protocol as protocol
from labelwright_client import _stream as stream
from labelwright_client._calls import Call, Choice, Threshold
from labelwright_client._errors import ClientError
from labelwright_client._pictures import Pictures
from labelwright_client._progress import Progress
from labelwright_client._rows import Rows
from labelwright_client._shell import Shell
from labelwright_client._stream import ManyRows, Pace
from labelwright_client._trace import asker
from labelwright_client._types import (
    Comparison,
    Embeddings,
    Masks,
    ModelInfo,
    Prediction,
    Predictions,
    Spans,
    Speeds,
)

T = TypeVar("T")


class AsyncClient(Shell):
    """The same for asyncio: same options, same methods to await, same errors.

    To run under trio, pass `sleep=trio.sleep`; `predict_many` and `embed_many` need asyncio.
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
        request_id: str | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> Predictions:
        """Predict the labels of each row, as `Client.predict` does."""
        choice = Choice(top_k=top_k, threshold=threshold, model=model)
        return await self._run(calls.predict_call(rows, choice, asker(request_id, trace)))

    def predict_many(
        self,
        rows: ManyRows,
        *,
        top_k: SupportsIndex | None = None,
        threshold: Threshold | None = None,
        model: str | None = None,
        chunk_rows: int = 256,
        concurrency: int = 4,
        progress: Progress = False,
    ) -> AsyncIterator[Prediction]:
        """Predict any number of rows, as `Client.predict_many` does, for `async for`."""
        choice, pace = (
            Choice(top_k=top_k, threshold=threshold, model=model),
            Pace(chunk_rows, concurrency, progress),
        )
        return stream.async_answers(
            stream.cut(rows, chunk_rows),
            pace,
            lambda part: self._run(calls.predict_call(part, choice, asker())),
        )

    async def segment(
        self,
        pictures: Pictures,
        *,
        threshold: Threshold | None = None,
        model: str | None = None,
        request_id: str | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> Masks:
        """Find which pixels of each picture are on, as `Client.segment` does."""
        choice = Choice(threshold=threshold, model=model)
        return await self._run(calls.segment_call(pictures, choice, asker(request_id, trace)))

    async def spans(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        threshold: float | None = None,
        model: str | None = None,
        request_id: str | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> Spans:
        """Find the roles that words have, as `Client.spans` does."""
        choice = Choice(threshold=threshold, model=model)
        return await self._run(calls.spans_call(rows, choice, asker(request_id, trace)))

    async def embed(
        self,
        rows: Rows,
        *,
        model: str | None = None,
        request_id: str | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> Embeddings:
        """Turn each row into a vector, as `Client.embed` does."""
        choice = Choice(model=model)
        return await self._run(calls.embed_call(rows, choice, asker(request_id, trace)))

    def embed_many(
        self,
        rows: ManyRows,
        *,
        model: str | None = None,
        chunk_rows: int = 256,
        concurrency: int = 4,
        progress: Progress = False,
    ) -> AsyncIterator[tuple[float, ...]]:
        """Embed any number of rows, as `Client.embed_many` does, for `async for`."""
        choice, pace = Choice(model=model), Pace(chunk_rows, concurrency, progress)
        return stream.async_answers(
            stream.cut(rows, chunk_rows),
            pace,
            lambda part: self._run(calls.embed_call(part, choice, asker())),
        )

    async def compare(
        self,
        rows: Rows,
        *,
        models: Sequence[str] | None = None,
        top_k: SupportsIndex | None = None,
        threshold: Threshold | None = None,
        request_id: str | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> Comparison:
        """Ask several models about the same rows, as `Client.compare` does."""
        choice = Choice(top_k=top_k, threshold=threshold)
        return await self._run(calls.compare_call(rows, choice, models, asker(request_id, trace)))

    async def speeds(self, *, baseline: str | None = None) -> Speeds:
        """Tell how fast each model was since the server's start, as multiples of the baseline."""
        return await self._run(calls.speeds_call(baseline, asker()))

    async def models(self) -> list[ModelInfo]:
        """Describe every model the server has loaded."""
        return await self._run(calls.models_call(asker()))

    async def model(self, name: str) -> ModelInfo:
        """Describe one model; an unknown name is an InvalidInput with status 404."""
        return await self._run(calls.model_call(name, asker()))

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
            await self._once(calls.ready_call(asker()))
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
