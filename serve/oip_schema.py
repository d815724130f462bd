"""The Open Inference Protocol as OpenAPI describes it: documentation only, as `serve.schema`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from serve.schema import MEANING


class OipServer(BaseModel):
    """The server, to clients of the Open Inference Protocol."""

    name: str
    version: str
    extensions: list[str]


class OipLive(BaseModel):
    """The process is alive."""

    live: Literal[True]


class OipReady(BaseModel):
    """The server takes requests."""

    ready: Literal[True]


class OipModelReady(BaseModel):
    """A model takes requests."""

    name: str
    ready: Literal[True]


class OipTensorSpec(BaseModel):
    """An input or output of a model; -1 is any length."""

    name: str
    datatype: str
    shape: list[int]


class OipModel(BaseModel):
    """What a model takes and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[OipTensorSpec]
    outputs: list[OipTensorSpec]


class OipTensor(BaseModel):
    """Numbers or texts, row after row; without `data` they follow the JSON as bytes."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] | None = None
    data: list[Any] | None = None


class OipOutput(BaseModel):
    """An output to answer with."""

    name: Literal["scores", "top_scores", "top_labels", "labels"]
    parameters: dict[str, Any] | None = Field(
        None, description="`binary_data`: as bytes; `classification`: so many labels as text."
    )


class OipInferRequest(BaseModel):
    """Rows to score."""

    id: str | None = Field(None, description="Echoed.")
    parameters: dict[str, Any] | None = Field(
        None,
        description="`top_k`, `timeout` in microseconds, `binary_data_output`; others are ignored.",
    )
    inputs: list[OipTensor] = Field(min_length=1, max_length=1, description="`features`.")
    outputs: list[OipOutput] | None = Field(None, description="Default: all.")


class OipInferAnswer(BaseModel):
    """The outputs that were asked for."""

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[OipTensor]


class OipIndexEntry(BaseModel):
    """One model, loaded or not."""

    name: str
    version: str
    state: Literal["READY", "UNAVAILABLE"]
    reason: str


class OipNothing(BaseModel):
    """It is done."""


class OipError(BaseModel):
    """Every error below /v2."""

    error: str


def oip_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route of the Open Inference Protocol."""
    return {status: {"model": OipError, "description": MEANING[status]} for status in statuses}
