"""Client of a Labelwright server: rows in, labels with their scores out."""

from labelwright_client._client import AsyncClient, Client
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
    Embeddings,
    InputSpec,
    LatencyMs,
    ModelId,
    ModelInfo,
    Prediction,
    Predictions,
    Thresholds,
)
from labelwright_client._version import __version__

__all__ = [
    "AsyncClient",
    "BadAnswer",
    "Client",
    "ClientError",
    "DeadlineExceeded",
    "Embeddings",
    "InputSpec",
    "InvalidArgument",
    "InvalidInput",
    "LatencyMs",
    "ModelId",
    "ModelInfo",
    "Prediction",
    "Predictions",
    "RequestTimedOut",
    "ServerBusy",
    "ServerFailed",
    "ServerUnreachable",
    "StatusError",
    "Thresholds",
    "__version__",
]
