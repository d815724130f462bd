"""What the methods of a client return: plain frozen values, named as on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

from labelwright_client._errors import StatusError
from labelwright_client._frame import frame

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray


COMPARED_COLUMNS = ("model", "milliseconds", "row", "label", "score")


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

    def to_frame(self) -> pd.DataFrame:
        """Columns `row`, `label` and `score`: a line for each label of each row, best first.

        A row without labels has no line. Rows are counted from 0.
        """
        return frame(_label_lines(self.rows))


@dataclass(frozen=True, slots=True)
class Mask:
    """Which pixels of one image are on, at the size of the model."""

    height: int
    width: int
    coverage: float
    """Share of the pixels that are on."""
    pixels: bytes = field(repr=False)
    """1 where a pixel is on, else 0, line after line."""
    png: bytes = field(repr=False)
    """The same as a black and white picture, to be written to a file."""

    def lines(self) -> list[list[bool]]:
        """Lines of pixels, from the top."""
        starts = range(0, len(self.pixels), self.width)
        return [list(map(bool, self.pixels[start : start + self.width])) for start in starts]

    def to_array(self) -> NDArray[np.bool_]:
        """A numpy array (height, width) of truth values."""
        try:
            import numpy as np  # noqa: PLC0415 - the package must do without it
        except ImportError as error:
            raise ImportError("to_array() needs numpy: pip install numpy") from error
        return np.frombuffer(self.pixels, dtype=np.bool_).reshape(self.height, self.width)


@dataclass(frozen=True, slots=True)
class Masks(Sequence[Mask]):
    """One mask a picture, in the order of the pictures, and how they were made."""

    rows: tuple[Mask, ...]
    model: ModelId
    latency_ms: LatencyMs
    request_id: str

    @overload
    def __getitem__(self, index: int) -> Mask: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Mask, ...]: ...
    def __getitem__(self, index: int | slice) -> Mask | tuple[Mask, ...]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Span:
    """Words of one row that bear a role together."""

    role: str
    start: int
    end: int
    """The last word; words count from 0."""
    words: tuple[str, ...]
    score: float
    """Of the worst of them."""


@dataclass(frozen=True, slots=True)
class Spans(Sequence[tuple[Span, ...]]):
    """The spans of each row, in the order of the rows, and how they were made."""

    rows: tuple[tuple[Span, ...], ...]
    model: ModelId
    latency_ms: LatencyMs
    request_id: str

    @overload
    def __getitem__(self, index: int) -> tuple[Span, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[Span, ...], ...]: ...
    def __getitem__(self, index: int | slice) -> tuple[Span, ...] | tuple[tuple[Span, ...], ...]:
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

    def to_frame(self) -> pd.DataFrame:
        """A line for each row, and a column for each number of its vector: 0, 1, 2, ..."""
        return frame(dict(enumerate(zip(*self.rows, strict=True))))


@dataclass(frozen=True, slots=True)
class Compared:
    """What one model answered: either `predictions`, or the `error` that `predict` would raise."""

    milliseconds: float
    predictions: Predictions | None
    error: StatusError | None


@dataclass(frozen=True, slots=True)
class Comparison(Sequence[Compared]):
    """The same rows through several models, in the order in which they were asked."""

    answers: tuple[Compared, ...]
    request_id: str

    @overload
    def __getitem__(self, index: int) -> Compared: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Compared, ...]: ...
    def __getitem__(self, index: int | slice) -> Compared | tuple[Compared, ...]:
        return self.answers[index]

    def __len__(self) -> int:
        return len(self.answers)

    def to_frame(self) -> pd.DataFrame:
        """Columns `model`, `milliseconds`, `row`, `label`, `score`; without models that failed."""
        lines: dict[str, list[object]] = {name: [] for name in COMPARED_COLUMNS}
        for answer in self.answers:
            if answer.predictions is not None:
                columns = _label_lines(answer.predictions)
                count = len(columns["row"])
                lines["model"] += [answer.predictions.model.name] * count
                lines["milliseconds"] += [answer.milliseconds] * count
                for name, values in columns.items():
                    lines[name] += values
        return frame(lines)


@dataclass(frozen=True, slots=True)
class QuantilesMs:
    """Quantiles of the milliseconds inside the server; None before the first request."""

    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """What one model measured since the server's start; `ratio` is to the baseline."""

    name: str
    version: str
    method: str
    dataset: str
    requests: int
    rows: int
    rows_per_second: float | None
    ratio: float | None
    latency_ms: QuantilesMs


@dataclass(frozen=True, slots=True)
class Speeds:
    """The speed of every loaded model, and the name of the one whose ratio is 1."""

    baseline: str
    models: tuple[ModelSpeed, ...]

    def to_frame(self) -> pd.DataFrame:
        """A line for each model; the quantiles are the columns `p50`, `p95` and `p99`."""
        quantiles = ("p50", "p95", "p99")
        columns = {
            name: [getattr(model, name) for model in self.models]
            for name in ModelSpeed.__slots__
            if name != "latency_ms"
        }
        return frame(
            columns
            | {q: [getattr(model.latency_ms, q) for model in self.models] for q in quantiles}
        )


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


def _label_lines(rows: Sequence[Prediction]) -> dict[str, list[object]]:
    return {
        "row": [i for i, prediction in enumerate(rows) for _ in prediction.labels],
        "label": [label for prediction in rows for label in prediction.labels],
        "score": [score for prediction in rows for score in prediction.scores],
    }
