"""Models side by side: what each measured so far, and one input through several of them."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from serve import api, schema
from serve.batching import Outcome
from serve.door import kept_headers
from serve.errors import InvalidInputError, Reply
from serve.exchange import Headers, Target
from serve.fastpath import read_body, settle
from serve.kinds import kind_of
from serve.routes import PREDICT_PATH, find_target
from serve.service import Service
from serve.telemetry import ModelTotals

COMPARE_FIELDS = ("inputs", "models", "top_k", "threshold")
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
DIGITS = 4


def compare_router(service: Service) -> APIRouter:
    """`GET /compare` and `POST /compare`."""
    router = APIRouter()

    @router.get(
        "/compare",
        summary="Speed of the loaded models, as measured on their requests so far",
        response_model=schema.Comparison,
        responses=schema.errors(404, 422),
    )
    async def measured(
        baseline: Annotated[
            str | None, Query(description="Model whose speed is 1; default: --baseline.")
        ] = None,
    ) -> Response:
        """Sums over all workers, since they started.

        `rows_per_second` counts the model's own time only, so it does not depend on the load;
        quantiles are read off the histograms of `/metrics`.
        """
        return _json(_measured(service, baseline))

    @router.post(
        "/compare",
        summary="One input through several models",
        response_model=schema.CompareAnswer,
        responses=schema.errors(400, 404, 408, 413, 422),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {"schema": schema.CompareRequest.model_json_schema()}
                },
            }
        },
    )
    async def compare(request: Request) -> Response:
        """The models are asked one after another, so that none slows another down.

        Each answer is that of `POST /predict`, be it an error; what no model takes is refused.
        """
        body = await read_body(request.receive, service.check_size)
        return _json(await _compared(service, body, kept_headers(request.scope["headers"])))

    return router


def _measured(service: Service, baseline: str | None) -> dict[str, Any]:
    totals = service.telemetry.model_totals()
    name = baseline or service.telemetry.baseline_name
    base = service.names.about(name).manifest.name
    speed = totals[base].rows_per_second
    return {
        "baseline": base,
        "models": [_speeds(service, model, total, speed) for model, total in totals.items()],
    }


def _speeds(service: Service, name: str, total: ModelTotals, base: float) -> dict[str, Any]:
    manifest = service.models[name].manifest
    quantiles = {word: total.quantile(share) for word, share in QUANTILES.items()}
    speed = total.rows_per_second
    return {
        "name": name,
        "version": manifest.version,
        "method": manifest.method,
        "dataset": manifest.dataset,
        "requests": int(total.requests),
        "rows": int(total.rows),
        "rows_per_second": round(speed, 1) if speed else None,
        "ratio": round(speed / base, DIGITS) if speed and base else None,
        "latency_ms": {
            word: None if seconds is None else round(seconds * 1e3, DIGITS)
            for word, seconds in quantiles.items()
        },
        "queued_rows": int(total.queued_rows),
    }


async def _compared(service: Service, body: bytes, headers: Headers) -> dict[str, Any]:
    fields = api.parse_body(body, COMPARE_FIELDS)
    names = fields.pop("models", None)
    if names is None:
        names = list(service.models)
    if not isinstance(names, list) or not names:
        raise InvalidInputError(f'"models" must be a list of names, got {kind_of(names)}')
    if None in names:  # which elsewhere is the default model
        raise InvalidInputError('"models" must be a list of names, got null in it')
    asked = dict.fromkeys(_single(service, name) for name in names)
    answers = [
        await _answer(service, orjson.dumps({**fields, "model": name}), headers) for name in asked
    ]
    if all(answer["status"] == HTTPStatus.UNPROCESSABLE_ENTITY for answer in answers):
        refusal = orjson.loads(orjson.dumps(answers[0]["answer"]))
        raise InvalidInputError(refusal["error"]["message"])
    return {"answers": answers}


def _single(service: Service, name: object) -> object:
    """The name of a model, or of its first version where two share its requests."""
    model = service.names.about(name)
    return f"{model.wire.name}@{model.manifest.version}" if service.names.is_split(name) else name


async def _answer(service: Service, body: bytes, headers: Headers) -> dict[str, Any]:
    """What `POST /predict` answers to a body, and how long it took."""
    target = find_target(PREDICT_PATH.encode())
    assert target is not None  # noqa: S101 - the path of a route
    started = time.perf_counter()
    reply = await _predicted(service, target, body, headers)
    return {
        "status": reply.status,
        "answer": orjson.Fragment(reply.body),
        "milliseconds": round((time.perf_counter() - started) * 1e3, DIGITS),
    }


async def _predicted(service: Service, target: Target, body: bytes, headers: Headers) -> Reply:
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    exchange = service.begin(target, headers)
    try:
        service.admit(exchange)
        job = service.enqueue(exchange, body, partial(settle, future))
        try:
            outcome = await future
        except asyncio.CancelledError:
            job.is_abandoned = True
            service.forget(exchange)
            raise
    except Exception as error:  # noqa: BLE001 - the service answers or logs it
        outcome = error
    finally:
        service.end()
    return service.reply(exchange, outcome)


def _json(value: dict[str, Any]) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
