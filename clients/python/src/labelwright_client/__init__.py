"""Client of a Labelwright server: rows in, labels with their scores out."""

from labelwright_client._async_client import AsyncClient
from labelwright_client._client import Client
from labelwright_client._errors import (
    BadAnswer,
    ClientError,
    DeadlineExceeded,
    InvalidArgument,
    InvalidInput,
    RequestTimedOut,
    ServerBusy,
    ServerFailed,
    ServerUnreachable,
    StatusError,
)
from labelwright_client._types import (
    Compared,
    Comparison,
    Embeddings,
    InputSpec,
    LatencyMs,
    ModelId,
    ModelInfo,
    ModelSpeed,
    Prediction,
    Predictions,
    QuantilesMs,
    Speeds,
    Thresholds,
)
from labelwright_client._version import __version__

__all__ = [
    "AsyncClient",
    "BadAnswer",
    "Client",
    "ClientError",
    "Compared",
    "Comparison",
    "DeadlineExceeded",
    "Embeddings",
    "InputSpec",
    "InvalidArgument",
    "InvalidInput",
    "LatencyMs",
    "ModelId",
    "ModelInfo",
    "ModelSpeed",
    "Prediction",
    "Predictions",
    "QuantilesMs",
    "RequestTimedOut",
    "ServerBusy",
    "ServerFailed",
    "ServerUnreachable",
    "Speeds",
    "StatusError",
    "Thresholds",
    "__version__",
]
