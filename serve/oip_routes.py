"""The quiet routes of the Open Inference Protocol: health, metadata and the models there are."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from serve import schema
from serve.errors import DrainingError
from serve.fastpath import read_body
from serve.oip import metadata, model_of
from serve.service import RETRY_AFTER_DRAIN_SECONDS, Service

EXTENSIONS = ["binary_tensor_data", "classification", "model_repository"]
NAMED = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
OIP_PREFIX = "/v2"


def oip_router(service: Service) -> APIRouter:
    """All routes below /v2 but `infer`, which is answered below FastAPI."""
    router = APIRouter(tags=["Open Inference Protocol"])

    @router.get("/v2", summary="The server", response_model=schema.OipServer)
    async def server() -> Response:
        return _json({"name": "labelwright", "version": _version(), "extensions": EXTENSIONS})

    @router.get("/v2/health/live", summary="The process is alive", response_model=schema.OipLive)
    async def live() -> Response:
        return _json({"live": True})

    @router.get(
        "/v2/health/ready",
        summary="The server takes requests",
        response_model=schema.OipReady,
        responses=schema.oip_errors(503),
    )
    async def ready() -> Response:
        if not service.is_ready:
            raise DrainingError("the server is not ready", retry_after=RETRY_AFTER_DRAIN_SECONDS)
        return _json({"ready": True})

    _add_models(router, service)
    _add_repository(router, service)
    return router


def _add_models(router: APIRouter, service: Service) -> None:
    async def about(name: str, version: str | None = None) -> Response:
        return _json(metadata(model_of(name, version, service.models)))

    async def ready(name: str, version: str | None = None) -> Response:
        model = model_of(name, version, service.models)
        return _json({"name": model.manifest.name, "ready": True})

    async def infer(body: schema.OipInferRequest, name: str, version: str | None = None) -> None:
        raise NotImplementedError("answered by serve.oip")

    for path in NAMED:
        router.get(
            path,
            summary="Inputs and outputs of a model",
            response_model=schema.OipModel,
            responses=schema.oip_errors(404, 422),
        )(about)
        router.get(
            f"{path}/ready",
            summary="A model takes requests",
            response_model=schema.OipModelReady,
            responses=schema.oip_errors(404, 422),
        )(ready)
        router.post(
            f"{path}/infer",
            summary="Score rows",
            response_model=schema.OipInferAnswer,
            responses=schema.oip_errors(400, 401, 404, 408, 413, 415, 422, 429, 500, 503, 504),
        )(infer)


def _add_repository(router: APIRouter, service: Service) -> None:
    @router.post(
        "/v2/repository/index",
        summary="The models there are",
        response_model=list[schema.OipIndexEntry],
    )
    async def index(request: Request) -> Response:
        # The one thing that a body may say is {"ready": true}.
        body = await read_body(request.receive, service.check_size)
        only_ready = body.replace(b" ", b"") == b'{"ready":true}'
        entries = service.library.index()
        return _json([entry for entry in entries if not only_ready or entry["state"] == "READY"])

    @router.post(
        "/v2/repository/models/{name}/load",
        summary="Load a model, or load it anew",
        response_model=schema.OipNothing,
        responses=schema.oip_errors(404, 422),
    )
    async def load(name: str) -> Response:
        await service.library.load(name)
        return _json({})

    @router.post(
        "/v2/repository/models/{name}/unload",
        summary="Unload a model",
        response_model=schema.OipNothing,
        responses=schema.oip_errors(404, 422),
    )
    async def unload(name: str) -> Response:
        await service.library.unload(name)
        return _json({})


def _version() -> str:
    try:
        return version("labelwright")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "0"


def _json(value: Any) -> Response:  # noqa: ANN401 - anything that is JSON
    return Response(orjson.dumps(value), media_type="application/json")
