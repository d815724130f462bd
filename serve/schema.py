"""The HTTP interface as OpenAPI describes it: documentation only, `serve.api` does the work."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

EXAMPLE_REQUEST: dict[str, Any] = {"inputs": [[0.12, 0.0, 0.8]], "top_k": 2}
EXAMPLE_SPARSE: dict[str, Any] = {"inputs": [{"0": 0.12, "2": 0.8}], "threshold": "tuned"}
EXAMPLE_TEXT: dict[str, Any] = {"inputs": ["a text to label"], "top_k": 2}
EXAMPLE_ANSWER: dict[str, Any] = {
    "model": {"name": "delicious-seal", "version": "0f3c9a1b2d4e", "method": "seal"},
    "predictions": [{"labels": ["design", "css"], "scores": [0.93, 0.41]}],
    "latency_ms": {"queue": 0.04, "inference": 0.12, "total": 0.31},
    "request_id": "5b0c9d1e7a42-1f",
}

MODEL_NAME = (
    "Name of a loaded model, NAME@VERSION or an alias; needed when several are loaded and none is "
    "the default."
)

DenseRow = Annotated[list[float], Field(description="As many numbers as the model's width.")]
SparseRow = Annotated[
    dict[str, float], Field(description="Column number to value; all other columns are 0.")
]


TextRow = Annotated[
    str,
    Field(
        description="A text, for models that take text; a PNG or JPEG picture as base64, for models"
        " that take images."
    ),
]
ImageRow = Annotated[
    list[list[list[float]]],
    Field(description="Lines of pixels of red, green and blue, 0 to 255, for models of images."),
]


class WordsRow(BaseModel):
    """Words, or a text that is cut into words, for models that answer with spans."""

    model_config = ConfigDict(extra="forbid")

    tokens: list[str] | None = Field(None, min_length=1, description="Either words ...")
    text: str | None = Field(
        None, description="... or a text: letters and digits are words, other signs by themselves."
    )
    predicate: int | None = Field(
        None, ge=0, description="Place of the word whose arguments are wanted, from 0."
    )


InputRows = Annotated[
    list[DenseRow] | list[SparseRow] | list[TextRow] | list[ImageRow] | list[WordsRow],
    Field(min_length=1),
]


class PredictRequest(BaseModel):
    """Rows to score: all dense, all sparse, all texts, all images or all words."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [EXAMPLE_REQUEST, EXAMPLE_SPARSE, EXAMPLE_TEXT]},
    )

    inputs: InputRows
    top_k: int | None = Field(
        None,
        ge=1,
        description="Most labels a row, best first, at most the number of labels. Default: 5, "
        "or with a threshold every label that reaches it.",
    )
    threshold: Annotated[float, Field(ge=0, le=1)] | Literal["tuned", "per-label"] | None = Field(
        None,
        description='Lowest score of a label: a number, or one chosen in training: "tuned" (one '
        'for all labels) or "per-label".',
    )
    model: str | None = Field(None, description=MODEL_NAME)
    mask: Literal["png", "rle"] | None = Field(
        None,
        description="Models of images only: masks as black and white PNG in base64, or as lengths "
        "of runs that are off, on, off ... line after line. Default: png, from 0.5 on.",
    )


class ModelHead(BaseModel):
    """Which model answered."""

    name: str
    version: str = Field(description="The same weights have the same version.")
    method: str = Field(description="The training method.")


class Prediction(BaseModel):
    """The labels of one row, best first."""

    labels: list[str]
    scores: list[Annotated[float, Field(ge=0, le=1)]]


class MaskPrediction(BaseModel):
    """The mask of one image."""

    mask: str | list[int]
    coverage: float = Field(ge=0, le=1, description="Share of the pixels that are on.")


class Span(BaseModel):
    """Words that bear a role together."""

    role: str
    start: int = Field(ge=0, description="Its first word, from 0.")
    end: int = Field(ge=0, description="Its last word.")
    words: list[str]
    score: float = Field(ge=0, le=1, description="That of its worst word.")


class SpanPrediction(BaseModel):
    """The spans of one row of words, from left to right."""

    spans: list[Span]


class LatencyMs(BaseModel):
    """Where the time went, in milliseconds."""

    queue: float = Field(description="Waiting for a batch.")
    inference: float = Field(description="In the model, shared with the rest of the batch.")
    total: float = Field(description="From the request's headers to its answer.")


class PredictAnswer(BaseModel):
    """One prediction for each input row, in the same order."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE_ANSWER]})

    model: ModelHead
    predictions: list[Prediction] | list[MaskPrediction] | list[SpanPrediction]
    latency_ms: LatencyMs
    request_id: str


class EmbedRequest(BaseModel):
    """Rows to embed, as `POST /predict` takes them."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_REQUEST]})

    inputs: InputRows
    model: str | None = Field(None, description=MODEL_NAME)


class EmbedAnswer(BaseModel):
    """One vector for each input row, in the same order."""

    model: ModelHead
    embeddings: list[list[float]]
    latency_ms: LatencyMs
    request_id: str


class Problem(BaseModel):
    """What went wrong."""

    type: str = Field(description="One word for programs, such as `invalid_input`.")
    message: str = Field(description="One sentence for people.")
    request_id: str


class ErrorAnswer(BaseModel):
    """Every error of this server."""

    error: Problem


class ImageSize(BaseModel):
    """Pixels of an image."""

    height: int
    width: int


class ModelInput(BaseModel):
    """What one row must be."""

    kind: str = Field(description="`features`, `sparse`, `text` or `words`.")
    width: int | None = Field(None, description="Numbers in a row, or terms of a text.")
    names: list[str] | None = Field(None, description="Only in the detail of one model.")
    encoding: str | None = Field(None, description="Of text: `tokens` or `tfidf`.")
    max_tokens: int | None = Field(None, description="Tokens of a text that are looked at.")
    image: ImageSize | None = Field(None, description="Where rows are images.")
    predicate: bool | None = Field(None, description="Of words: whether rows have one marked.")


class ModelThresholds(BaseModel):
    """Thresholds chosen on validation rows."""

    tuned: float
    per_label: list[float] | None = Field(None, description="Only in the detail of one model.")


class ModelSearch(BaseModel):
    """How the best labels are found where not every label is scored exactly."""

    kind: Literal["int8", "ivf"]
    recall: float = Field(description="Share of the 10 best labels that is found.")
    rows: int = Field(description="Rows that it was measured on.")
    nprobe: int | None = Field(None, description="Cells of the index that are searched.")


class ModelOrigin(BaseModel):
    """Which training a model came from."""

    split: dict[str, Any] = Field(description="Rule, seed, fraction and rows of each part.")
    seed: int
    epoch: int
    config: dict[str, Any] = Field(description="The hyper-parameters of the method.")
    command: str | None = None
    scores: dict[str, dict[str, float]] | None = Field(
        None, description="Of test rows, at thresholds `tuned` and `per_label`."
    )


class ModelSummary(BaseModel):
    """A loaded model in short."""

    name: str
    version: str
    method: str
    task: str
    dataset: str
    input: ModelInput
    label_count: int
    thresholds: ModelThresholds
    test_scores: dict[str, float]


class CanaryShare(BaseModel):
    """A version on trial."""

    version: str
    share: float = Field(description="Of the requests to the model, 0 to 1.")


class ModelList(BaseModel):
    """All loaded models, and who answers to other names."""

    models: list[ModelSummary]
    default: str | None = Field(description="Answers requests that name no model.")
    aliases: dict[str, str] = Field(description="Other names, to NAME or NAME@VERSION.")
    canary: dict[str, CanaryShare] = Field(description="Versions on trial, by model.")


class ModelDetail(BaseModel):
    """Everything about a loaded model but its weights."""

    name: str
    version: str
    method: str
    task: str
    dataset: str
    input: ModelInput
    label_count: int
    labels: list[str]
    thresholds: ModelThresholds
    test_scores: dict[str, float]
    largest_difference: float = Field(description="Between training and serving runtime.")
    embedding_size: int | None = Field(None, description="Of `POST /embed`; null: it has none.")
    search: ModelSearch | None = Field(None, description="Null: every label is scored exactly.")
    origin: ModelOrigin | None = Field(None, description="Null in older bundles.")
    versions: dict[str, str]
    providers: list[str] = Field(description="Execution providers that run the model.")


class Example(BaseModel):
    """A test row of the bundle."""

    input: DenseRow | SparseRow | TextRow | WordsRow
    row: int
    rows: int = Field(description="How many there are.")


class QuantilesMs(BaseModel):
    """Milliseconds from headers to answer; null before the first request."""

    p50: float | None
    p95: float | None
    p99: float | None


class ModelSpeed(BaseModel):
    """What one model measured so far."""

    name: str
    version: str
    method: str
    dataset: str
    requests: int
    rows: int
    rows_per_second: float | None = Field(description="In the model's own time.")
    ratio: float | None = Field(description="How many times as fast as the baseline.")
    latency_ms: QuantilesMs
    queued_rows: int = Field(description="Rows that wait now.")


class Comparison(BaseModel):
    """All loaded models."""

    baseline: str
    models: list[ModelSpeed]


class CompareRequest(BaseModel):
    """Rows for several models; all other fields as in `/predict`."""

    model_config = ConfigDict(extra="forbid")

    inputs: list[Any] = Field(min_length=1)
    models: list[str] | None = Field(None, description="Default: all.")
    top_k: int | None = None
    threshold: float | str | None = None


class ComparedAnswer(BaseModel):
    """What one model answered."""

    status: int
    answer: PredictAnswer | ErrorAnswer
    milliseconds: float


class CompareAnswer(BaseModel):
    """One answer for each model, in the order asked for."""

    answers: list[ComparedAnswer]


class State(BaseModel):
    """How the server is."""

    status: Literal["ok"]


class Ready(State):
    """A server that takes requests."""

    problems: dict[str, str] = Field(
        description="What could not be loaded, by model or as models.toml; what was there before "
        "serves on."
    )


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that can fail with these statuses."""
    return {status: {"model": ErrorAnswer, "description": MEANING[status]} for status in statuses}


MEANING = {
    400: "The body is not JSON.",
    401: "The server wants a key, see `--api-keys`, and got none that it knows.",
    404: "No such model is loaded.",
    408: "The body did not arrive in time.",
    413: "More bytes or rows than the server takes in one request.",
    415: "The body is declared to be of a type or packing that is not taken.",
    422: "JSON of the wrong shape, type or range; the message names the row or field.",
    429: "The queue is full, or the key was used too often; `Retry-After` says when to come again.",
    500: "A bug in the server; its log has the request id.",
    503: "The server is stopping.",
    504: "The time given in `x-timeout-ms` ran out in the queue.",
}
