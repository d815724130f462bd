"""create_app(settings, predictors) -> FastAPI: the routes, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import orjson
from fastapi import Depends, FastAPI, Header, Query, Request, Response
from fastapi.params import Depends as DependsParameter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from export.manifest import InputSpec
from serve import schema
from serve.compare import compare_router
from serve.door import is_admin_path
from serve.errors import ApiError, DrainingError, Reply, error_reply, problem
from serve.example import example_row
from serve.fastpath import FastPath, RequestIds
from serve.oip import oip_problem
from serve.oip_routes import OIP_PREFIX, oip_router
from serve.page import page_router
from serve.predictor import OnnxPredictor
from serve.routes import EMBED_PATH, PREDICT_PATH
from serve.service import RETRY_AFTER_DRAIN_SECONDS, LoadedModel, Place, Service
from serve.settings import Settings

# Of the interface, not of the program: it changes when callers have to.
API_VERSION = "1"


class FrontedApp(FastAPI):
    """A FastAPI application that shows every request to the fast path before anything else."""

    def __init__(self, service: Service, **options: Any) -> None:  # noqa: ANN401 - FastAPI's own
        super().__init__(**options)
        self._front = FastPath(super().__call__, service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one connection of any kind."""
        await self._front(scope, receive, send)


def create_app(
    settings: Settings, predictors: Iterable[OnnxPredictor], place: Place | None = None
) -> FastAPI:
    """Build the application around models that were loaded and probed before, so it is born ready.

    Its `state.service` is the `Service` behind it; `place` is its own among other workers.
    """
    service = Service(settings, predictors, place)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.ensure_future(task()) for task in (service.library.watch, service.tell)]
        yield
        for task in tasks:
            task.cancel()
        service.close()

    app = FrontedApp(
        service,
        title="Labelwright",
        version=API_VERSION,
        description="Scores rows with multi-label classifiers.",
        lifespan=lifespan,
        redirect_slashes=False,
        dependencies=_guards(settings, service),
        redoc_url=None,
    )
    app.state.service = service
    app.add_middleware(RequestIds, service=service)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ApiError, _on_api_error)
    _declare_fast_routes(app)
    _add_models(app, service)
    _add_health(app, service)
    app.include_router(compare_router(service))
    app.include_router(oip_router(service))
    app.include_router(page_router())
    return app


def _guards(settings: Settings, service: Service) -> list[DependsParameter]:
    """What stands before every route that FastAPI answers."""
    door, admin_port = service.door, settings.admin_port
    if door is None and admin_port is None:
        return []

    async def guard(request: Request) -> None:
        path = request.url.path
        is_public = admin_port is not None and request.scope["server"][1] != admin_port
        if is_public and is_admin_path(path):
            raise HTTPException(HTTPStatus.NOT_FOUND)
        if door is not None:
            door.admit(dict(request.scope["headers"]), path)

    return [Depends(guard)]


def openapi_text() -> str:
    """The interface as committed in `serve/openapi.json`."""
    app = create_app(Settings(bundles=(Path("model.bundle"),)), [])
    text = orjson.dumps(app.openapi(), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
    return text.decode() + "\n"


RequestId = Annotated[str | None, Header(description="1 to 128 visible ASCII characters, echoed.")]
TimeoutMs = Annotated[
    float | None, Header(gt=0, description="Longest wait in the queue, then 504.")
]

RowNumber = Annotated[
    str,
    Query(description="Which row, from 0.", json_schema_extra={"type": "integer", "minimum": 0}),
]


def _declare_fast_routes(app: FastAPI) -> None:
    failures = schema.errors(400, 401, 404, 408, 413, 415, 422, 429, 500, 503, 504)

    @app.post(
        PREDICT_PATH,
        summary="Score rows and rank their labels",
        response_model=schema.PredictAnswer,
        responses=failures,
    )
    async def predict(
        body: schema.PredictRequest, x_request_id: RequestId = None, x_timeout_ms: TimeoutMs = None
    ) -> None:
        """Send rows as lists of numbers, as objects from column number to value, or as texts.

        Without `threshold` a row gets its `top_k` best labels; with one, those that reach it.
        """
        raise NotImplementedError("POST /predict is answered by serve.fastpath")

    @app.post(
        EMBED_PATH,
        summary="Embed rows",
        response_model=schema.EmbedAnswer,
        responses={
            200: {
                "content": {"application/octet-stream": {}},
                "description": "With `accept: application/octet-stream` float32 numbers, row after "
                "row, little end first; `x-embedding-size` says how many are one row.",
            },
            **failures,
        },
    )
    async def embed(
        body: schema.EmbedRequest, x_request_id: RequestId = None, x_timeout_ms: TimeoutMs = None
    ) -> None:
        """Send rows as for `/predict`, get what their scores are the inner products of."""
        raise NotImplementedError("POST /embed is answered by serve.fastpath")


def _add_models(app: FastAPI, service: Service) -> None:
    @app.get("/models", summary="The loaded models", response_model=schema.ModelList)
    async def models() -> Response:
        return _json(
            {
                "models": [_summary(model) for model in service.models.values()],
                "default": service.names.default,
                "aliases": service.names.aliases,
                "canary": {
                    name: {"version": canary.version, "share": float(canary.share)}
                    for name, canary in service.names.canary.items()
                },
            }
        )

    @app.get(
        "/models/{name}",
        summary="Everything about one model",
        response_model=schema.ModelDetail,
        responses=schema.errors(404, 422),
    )
    async def model(name: str) -> Response:
        return _json(_detail(service.names.about(name)))

    @app.get(
        "/models/{name}/example",
        summary="A row to try the model with",
        response_model=schema.Example,
        responses=schema.errors(404, 422),
    )
    async def example(name: str, row: RowNumber = "0") -> Response:
        """One of the test rows that the bundle holds, as `inputs` of `/predict` take it."""
        return _json(example_row(service.names.about(name).predictor.bundle, row))


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", summary="The process is alive", response_model=schema.State)
    async def healthz() -> Response:
        return _json({"status": "ok"})

    @app.get(
        "/readyz",
        summary="The server takes requests",
        response_model=schema.Ready,
        responses=schema.errors(503),
    )
    async def readyz() -> Response:
        """What could not be loaded is told and leaves what was there before in place."""
        if not service.is_ready:
            what = "is stopping" if service.is_draining else "has workers that are starting"
            raise DrainingError(f"the server {what}", retry_after=RETRY_AFTER_DRAIN_SECONDS)
        return _json({"status": "ok", "problems": service.library.problems})

    @app.get(
        "/metrics",
        summary="Metrics for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}},
    )
    async def metrics() -> Response:
        return Response(service.telemetry.exposition(), media_type=CONTENT_TYPE_LATEST)


def _summary(model: LoadedModel) -> dict[str, Any]:
    manifest = model.manifest
    return {
        "name": manifest.name,
        "version": manifest.version,
        "method": manifest.method,
        "task": manifest.task,
        "dataset": manifest.dataset,
        "input": _input(manifest.input),
        "label_count": manifest.label_count,
        "thresholds": {"tuned": manifest.thresholds.tuned},
        "test_scores": manifest.test_scores,
    }


def _input(spec: InputSpec) -> dict[str, Any]:
    about: dict[str, Any] = {"kind": spec.kind, "width": spec.width}
    if spec.image is not None:
        about |= {"image": asdict(spec.image)}
    if spec.kind == "words":
        about |= {"max_tokens": spec.max_tokens, "predicate": spec.predicate}
    if spec.kind == "text":
        about |= {"encoding": spec.encoding, "max_tokens": spec.max_tokens}
    return about


def _detail(model: LoadedModel) -> dict[str, Any]:
    predictor, manifest = model.predictor, model.manifest
    return {
        **_summary(model),
        "input": {**_input(manifest.input), "names": manifest.input.names},
        # As read from the manifest: a million of them are not worth an answer.
        "thresholds": asdict(manifest.thresholds),
        "labels": predictor.labels,
        "largest_difference": manifest.largest_difference,
        "embedding_size": manifest.embedding_size,
        "search": None if manifest.search is None else asdict(manifest.search),
        "origin": None if manifest.origin is None else asdict(manifest.origin),
        "versions": manifest.versions,
        "providers": predictor.providers,
    }


def _json(value: object) -> Response:
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, media_type="application/json")


def _on_api_error(request: Request, error: Exception) -> Response:
    reply = oip_problem if request.url.path.startswith(f"{OIP_PREFIX}/") else error_reply
    return _response(reply(error, request.state.request_id))


def _on_http_exception(request: Request, error: Exception) -> Response:
    """Wrong paths and methods, which the router refuses, in the shape of all other errors."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for nothing else
    status = HTTPStatus(error.status_code)
    path, method = request.url.path[:100], request.method
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        message = f"{path} does not take {method}: see /docs"
    else:
        message = f"there is nothing at {path!r}: see /docs"
    headers = [(k.lower().encode(), v.encode()) for k, v in (error.headers or {}).items()]
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers = [(b"allow", ", ".join(_methods_of(request)).encode())]
    kind = status.name.lower()
    return _response(problem(status, kind, message, request.state.request_id, headers))


def _methods_of(request: Request) -> list[str]:
    """All that a path takes: the router tells those of the first route that has it."""

    def is_taken(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return [method for method in ("GET", "HEAD", "POST") if is_taken(method)]


def _response(reply: Reply) -> Response:
    response = Response(reply.body, reply.status)
    response.raw_headers = reply.headers
    return response
