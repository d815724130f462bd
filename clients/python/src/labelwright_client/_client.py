"""`Client`, a thin shell that sends, and sleeps, as `_calls` and `_protocol` say."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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


class Client(Shell):
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
        request_id: str | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> Predictions:
        """Predict the labels of each row.

        Args:
            rows: Lists of numbers, {index: value} dicts, texts, a 2-D array, a data frame of
                numbers or a sparse matrix.
            top_k: At most so many labels a row.
            threshold: Only labels that score at least this; "tuned" and "per-label" ask for the
                values chosen when the model was trained.
            model: Name of the model, needed if the server has several.
            request_id: 1 to 128 visible ASCII characters; if None, a random one.
            trace: The headers `traceparent` and `tracestate`; if None, those of OpenTelemetry's
                current context, where it is installed.
        """
        choice = Choice(top_k=top_k, threshold=threshold, model=model)
        return self._run(calls.predict_call(rows, choice, asker(request_id, trace)))

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
    ) -> Iterator[Prediction]:
        """Predict any number of rows, out of memory or not: one prediction a row, in their order.

        Args:
            rows: As for `predict`, or anything that yields rows, such as a generator.
            top_k: As for `predict`.
            threshold: As for `predict`.
            model: As for `predict`.
            chunk_rows: Rows in a request; fewer where the rows of an array are very wide.
            concurrency: Requests under way at a time, each with a thread.
            progress: True for a bar on stderr, or a function of the rows done and the total, which
                is None where `rows` cannot say.

        The first request that fails, after its retries, ends the iterator with its error, which
        has a note on where its rows are; predictions of all rows before them have come by then.
        """
        choice, pace = (
            Choice(top_k=top_k, threshold=threshold, model=model),
            Pace(chunk_rows, concurrency, progress),
        )
        return stream.answers(
            stream.cut(rows, chunk_rows),
            pace,
            lambda part: self._run(calls.predict_call(part, choice, asker())),
        )

    def segment(
        self,
        pictures: Pictures,
        *,
        threshold: Threshold | None = None,
        model: str | None = None,
        request_id: str | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> Masks:
        """Find the pixels of each picture that belong to what a model of images was trained on.

        Args:
            pictures: Paths of PNG or JPEG files, the bytes of such, or arrays (height, width, 3) of
                0 to 255, which must have the size of the model.
            threshold: Only pixels that score at least this; 0.5 if None, "tuned" asks for the
                value chosen when the model was trained.
            model: As for `predict`.
            request_id: As for `predict`.
            trace: As for `predict`.
        """
        choice = Choice(threshold=threshold, model=model)
        return self._run(calls.segment_call(pictures, choice, asker(request_id, trace)))

    def spans(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        threshold: float | None = None,
        model: str | None = None,
        request_id: str | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> Spans:
        """Find the roles that words have, by a model of words.

        Args:
            rows: Of each a mapping with `tokens`, a list of words, or `text`, which the server cuts
                into words; and `predicate`, the place of the word in question, counted from 0,
                if the model was trained with one.
            threshold: Only spans that score at least this; all if None.
            model: As for `predict`.
            request_id: As for `predict`.
            trace: As for `predict`.
        """
        choice = Choice(threshold=threshold, model=model)
        return self._run(calls.spans_call(rows, choice, asker(request_id, trace)))

    def embed(
        self,
        rows: Rows,
        *,
        model: str | None = None,
        request_id: str | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> Embeddings:
        """Turn each row into the vector that its scores are the inner products of, with labels.

        Args:
            rows: As for `predict`.
            model: Name of the model, needed if the server has several.
            request_id: As for `predict`.
            trace: As for `predict`.
        """
        choice = Choice(model=model)
        return self._run(calls.embed_call(rows, choice, asker(request_id, trace)))

    def embed_many(
        self,
        rows: ManyRows,
        *,
        model: str | None = None,
        chunk_rows: int = 256,
        concurrency: int = 4,
        progress: Progress = False,
    ) -> Iterator[tuple[float, ...]]:
        """Embed any number of rows, as `predict_many` predicts them."""
        choice, pace = Choice(model=model), Pace(chunk_rows, concurrency, progress)
        return stream.answers(
            stream.cut(rows, chunk_rows),
            pace,
            lambda part: self._run(calls.embed_call(part, choice, asker())),
        )

    def compare(
        self,
        rows: Rows,
        *,
        models: Sequence[str] | None = None,
        top_k: SupportsIndex | None = None,
        threshold: Threshold | None = None,
        request_id: str | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> Comparison:
        """Ask several models, one after another, about the same rows.

        Args:
            rows: As for `predict`.
            models: Names, in the order of the answers; if None, all that are loaded.
            top_k: As for `predict`.
            threshold: As for `predict`.
            request_id: As for `predict`.
            trace: As for `predict`.
        """
        choice = Choice(top_k=top_k, threshold=threshold)
        return self._run(calls.compare_call(rows, choice, models, asker(request_id, trace)))

    def speeds(self, *, baseline: str | None = None) -> Speeds:
        """Tell how fast each model was since the server's start, as multiples of the baseline."""
        return self._run(calls.speeds_call(baseline, asker()))

    def models(self) -> list[ModelInfo]:
        """Describe every model the server has loaded."""
        return self._run(calls.models_call(asker()))

    def model(self, name: str) -> ModelInfo:
        """Describe one model; an unknown name is an InvalidInput with status 404."""
        return self._run(calls.model_call(name, asker()))

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
            self._once(calls.ready_call(asker()))
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
