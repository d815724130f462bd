"""Which addresses are answered below FastAPI."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import unquote

from serve.exchange import Target
from serve.predict import PredictRoute

PREDICT_PATH = "/predict"
_PREDICT = PredictRoute()


@lru_cache(maxsize=1024)
def find_target(url: bytes) -> Target | None:
    """The busy route that a POST to this path, with or without a query, goes to."""
    raw_path, _, query = url.partition(b"?")
    path = unquote(raw_path)
    if path == PREDICT_PATH:
        return Target(_PREDICT, query.decode("latin-1"))
    return None
