"""What JSON values are called in messages."""

from __future__ import annotations

KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    type(None): "null",
}


def kind_of(value: object) -> str:
    """What a JSON value is, in words that fit into a sentence."""
    return KINDS.get(type(value), "a number")
