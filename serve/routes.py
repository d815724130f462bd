"""Which addresses are answered below FastAPI."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import unquote

from serve.exchange import Target
from serve.oip import InferRoute
from serve.predict import EmbedRoute, PredictRoute

PREDICT_PATH, EMBED_PATH = PredictRoute.path, EmbedRoute.path
INFER_PATH = re.compile(rb"/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")
_PREDICT, _EMBED, _INFER = PredictRoute(), EmbedRoute(), InferRoute()


LONGEST_KEPT = 512


def find_target(url: bytes) -> Target | None:
    """The busy route that a POST to this path, with or without a query, goes to."""
    # Long ones are not kept: a thousand of them would be a good part of the memory.
    return _kept_target(url) if len(url) <= LONGEST_KEPT else _target(url)


@lru_cache(maxsize=1024)
def _kept_target(url: bytes) -> Target | None:
    return _target(url)


def _target(url: bytes) -> Target | None:
    raw_path, _, query = url.partition(b"?")
    path = unquote(raw_path)
    if path == PREDICT_PATH:
        return Target(_PREDICT, query.decode("latin-1"))
    if path == EMBED_PATH:
        return Target(_EMBED, query.decode("latin-1"))
    infer = INFER_PATH.fullmatch(raw_path)
    if infer is not None:
        name, version = (None if part is None else unquote(part) for part in infer.groups())
        return Target(_INFER, query.decode("latin-1"), name, version)
    return None
