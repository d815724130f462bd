"""The quiet routes of the Open Inference Protocol: health, metadata and the models there are."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from serve import oip_schema
from serve.errors import DrainingError
from serve.fastpath import read_body
from serve.oip import metadata
from serve.service import RETRY_AFTER_DRAIN_SECONDS, Service

EXTENSIONS = ["binary_tensor_data", "classification", "model_repository"]
NAMED = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
OIP_PREFIX = "/v2"


def oip_router(service: Service) -> APIRouter:
    """All routes below /v2 but `infer`, which is answered below FastAPI."""
    router = APIRouter(tags=["Open Inference Protocol"])

    @router.get("/v2", summary="The server", response_model=oip_schema.OipServer)
    async def server() -> Response:
        return _json({"name": "labelwright", "version": _version(), "extensions": EXTENSIONS})

    @router.get(
        "/v2/health/live", summary="The process is alive", response_model=oip_schema.OipLive
    )
    async def live() -> Response:
        return _json({"live": True})

    @router.get(
        "/v2/health/ready",
        summary="The server takes requests",
        response_model=oip_schema.OipReady,
        responses=oip_schema.oip_errors(503),
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
        model = service.names.about_version(name, version)
        return _json(metadata(model, service.names.versions(model)))

    async def ready(name: str, version: str | None = None) -> Response:
        model = service.names.about_version(name, version)
        return _json({"name": model.wire.name, "ready": True})

    async def infer(
        body: oip_schema.OipInferRequest, name: str, version: str | None = None
    ) -> None:
        raise NotImplementedError("answered by serve.oip")

    for path in NAMED:
        router.get(
            path,
            summary="Inputs and outputs of a model",
            response_model=oip_schema.OipModel,
            responses=oip_schema.oip_errors(404, 422),
        )(about)
        router.get(
            f"{path}/ready",
            summary="A model takes requests",
            response_model=oip_schema.OipModelReady,
            responses=oip_schema.oip_errors(404, 422),
        )(ready)
        router.post(
            f"{path}/infer",
            summary="Score rows",
            response_model=oip_schema.OipInferAnswer,
            responses=oip_schema.oip_errors(400, 401, 404, 408, 413, 415, 422, 429, 500, 503, 504),
        )(infer)


def _add_repository(router: APIRouter, service: Service) -> None:
    @router.post(
        "/v2/repository/index",
        summary="The models there are",
        response_model=list[oip_schema.OipIndexEntry],
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
        response_model=oip_schema.OipNothing,
        responses=oip_schema.oip_errors(404, 422),
    )
    async def load(name: str) -> Response:
        await service.library.load(name)
        return _json({})

    @router.post(
        "/v2/repository/models/{name}/unload",
        summary="Unload a model",
        response_model=oip_schema.OipNothing,
        responses=oip_schema.oip_errors(404, 422),
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
