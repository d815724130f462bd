"""A row of a bundle's probe, as a client would send it."""

from __future__ import annotations

from typing import Any

from export.bundle import Bundle
from export.feeds import cut
from serve.errors import InvalidInputError
from serve.inputs import sparse_rows


def example_row(bundle: Bundle, number: str) -> dict[str, Any]:
    """The answer of `GET /models/{name}/example`.

    Raises:
        InvalidInputError: The bundle has no row of that number.
    """
    count = len(bundle.probe_scores)
    row = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else count
    if row >= count:
        raise InvalidInputError(
            f'"row" must be a whole number from 0 to {count - 1}, got {number[:40]!r}'
        )
    return {"input": _input(bundle, row), "row": row, "rows": count}


def _input(bundle: Bundle, row: int) -> object:
    if bundle.probe_texts is not None:
        return bundle.probe_texts[row]
    if "features" in bundle.probe:
        return bundle.probe["features"][row]
    stored = sparse_rows(cut(bundle.probe, row, row + 1))
    return {str(column): value for column, value in zip(stored.columns, stored.values, strict=True)}
