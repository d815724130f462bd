"""What the methods of a client return: plain frozen values, named as on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload


@dataclass(frozen=True, slots=True)
class Prediction:
    """The labels of one row, best first, each with its score."""

    labels: tuple[str, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ModelId:
    """Which model answered."""

    name: str
    version: str
    method: str


@dataclass(frozen=True, slots=True)
class LatencyMs:
    """Milliseconds spent inside the server; the network is not in `total`."""

    queue: float
    inference: float
    total: float


@dataclass(frozen=True, slots=True)
class Predictions(Sequence[Prediction]):
    """One prediction a row, in the order of the rows, and how they were made."""

    rows: tuple[Prediction, ...]
    model: ModelId
    latency_ms: LatencyMs
    request_id: str

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Prediction, ...]: ...
    def __getitem__(self, index: int | slice) -> Prediction | tuple[Prediction, ...]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Embeddings(Sequence[tuple[float, ...]]):
    """One vector a row, in the order of the rows, and how they were made."""

    rows: tuple[tuple[float, ...], ...]
    model: ModelId
    latency_ms: LatencyMs
    request_id: str

    @overload
    def __getitem__(self, index: int) -> tuple[float, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[float, ...], ...]: ...
    def __getitem__(self, index: int | slice) -> tuple[float, ...] | tuple[tuple[float, ...], ...]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class InputSpec:
    """What one row must be; `width` and `names` are None where the kind has none."""

    kind: str
    width: int | None
    names: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Scores from which a label counts as predicted; `tuned` is None if none was chosen."""

    tuned: float | None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that the server has loaded."""

    name: str
    version: str
    method: str
    task: str
    dataset: str
    input: InputSpec
    label_count: int
    thresholds: Thresholds
    test_scores: Mapping[str, float]
