"""One busy request on its way, and what a route must know to read and answer it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from serve.api import Latency
from serve.errors import Reply
from serve.inputs import Rows

if TYPE_CHECKING:
    from serve.batching import Finished, MicroBatcher
    from serve.names import Names
    from serve.service import LoadedModel

Headers = Mapping[bytes, bytes]
"""Names in lower case; of several with one name the last."""


class Call(Protocol):
    """A request that can be answered: what the batcher has to run for it."""

    @property
    def rows(self) -> Rows:
        """What to score."""
        ...

    @property
    def k(self) -> int:
        """How many labels the graph has to rank."""
        ...

    @property
    def needs_scores(self) -> bool:
        """Whether all scores are needed, not only the best k."""
        ...


class Route(Protocol):
    """One way to ask for predictions: its bodies, answers and errors."""

    path: str
    """Its address; parts in braces stand for any word."""

    def admit(self, headers: Headers) -> None:
        """Refuse a request by its headers."""
        ...

    def parse(self, exchange: Exchange, body: bytes, names: Names) -> Call:
        """Choose the exchange's model and read what is asked of it."""
        ...

    def batcher(self, model: LoadedModel) -> MicroBatcher:
        """The queue of a model that its calls wait in."""
        ...

    def answer(self, exchange: Exchange, finished: Finished, latency: Latency) -> Reply:
        """The answer with status 200."""
        ...

    def problem(self, error: Exception, request_id: str) -> Reply:
        """The answer to a request that failed."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """What the address of a request says."""

    route: Route
    query: str = ""
    model: str | None = None
    version: str | None = None


@dataclass(slots=True)
class Exchange:
    """One prediction request; filled in as more of it becomes known."""

    target: Target
    headers: Headers
    request_id: str
    started: float
    deadline: float = math.inf
    has_body: bool = False
    """The body has arrived, all of it."""
    model: LoadedModel | None = None
    call: Call | None = field(default=None, repr=False)

    @property
    def loaded(self) -> LoadedModel:
        """The model, once the route has chosen it."""
        assert self.model is not None  # noqa: S101 - `Route.parse` sets it before it returns
        return self.model

    @property
    def batcher(self) -> MicroBatcher:
        """The queue that the call waits in."""
        return self.target.route.batcher(self.loaded)
