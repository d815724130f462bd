"""`python -m train data ...`: look at a data set before training on it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from train.errors import EXIT_OK


def data_command(console: Console, argv: Sequence[str]) -> int:
    """Placeholder until the doctor is there."""
    return EXIT_OK
