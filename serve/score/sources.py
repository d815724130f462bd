"""Files of rows that can be read chunk by chunk, in any order and by any process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from export.bundle import Bundle
from serve.api import ModelWire
from serve.errors import ApiError
from serve.inputs import Rows
from serve.rows import RowRules
from serve.settings import Settings
from train.errors import DataError


class Span(NamedTuple):
    """Rows of a file that stand together."""

    start: int
    """Number of the first one, from 0."""
    rows: int
    begin: int = 0
    """Of files of lines: the bytes that hold them, from here."""
    end: int = 0


@dataclass(frozen=True)
class Wanted:
    """What a model takes of a file."""

    rules: RowRules
    names: Sequence[str] | None
    """Columns that make a row, in order; None: all."""

    @classmethod
    def by(cls, bundle: Bundle, wire: ModelWire, text_column: str) -> Wanted:
        """What a bundle takes."""
        is_text = wire.rules.kind == "text"
        return cls(wire.rules, [text_column] if is_text else bundle.manifest.input.names)

    @property
    def is_text(self) -> bool:
        """Whether a row is one text."""
        return self.rules.kind == "text"


class Source(Protocol):
    """An open file."""

    def spans(self, chunk_rows: int) -> Iterator[Span]:
        """All rows, cut into chunks."""

    def read(self, span: Span) -> Rows:
        """The rows of one chunk, checked.

        Raises:
            ApiError: One of them is not what the model takes; rows are counted from 0 in the chunk.
            DataError: The file is at fault.
        """


def wire_of(bundle: Bundle, chunk_rows: int) -> ModelWire:
    """What rows of a bundle must be, and what may be asked for, as the server has it."""
    return ModelWire.of(bundle, max_rows=chunk_rows, max_characters=Settings.max_text_chars)


def places(path: Path, header: Sequence[str], wanted: Wanted) -> list[int]:
    """Which columns of a table make a row.

    Raises:
        DataError: One is missing or there twice, or without names there are too few or too many.
    """
    if wanted.names is None:
        if len(header) != wanted.rules.width:
            raise DataError(
                f"{path} has {len(header)} columns, and the bundle takes {wanted.rules.width} "
                "that have no names: keep these alone, in the order of training"
            )
        return list(range(len(header)))
    for name in wanted.names:
        if header.count(name) != 1:
            what = f"has the column {name!r} twice" if name in header else f"lacks column {name!r}"
            words = ", ".join(map(repr, header[:8])) or "no header"
            hint = ": name another with --text-column" if wanted.is_text else ""
            raise DataError(f"{path} {what}, which the bundle takes; it has {words}{hint}")
    column = {name: place for place, name in enumerate(header)}
    return [column[name] for name in wanted.names]


def read_checked(source: Source, path: Path, span: Span) -> Rows:
    """The rows of a chunk, or one sentence about the file and the row that is wrong.

    Raises:
        DataError: A row is not what the model takes, or the file is not what it was.
    """
    try:
        rows = source.read(span)
    except ApiError as error:
        raise DataError(f"{path}, {_counted_from(span.start, str(error))}") from error
    if len(rows) != span.rows:
        raise DataError(
            f"{path} was changed meanwhile: expected {span.rows} rows from row {span.start} on, "
            f"got {len(rows)}; score it again into another folder"
        )
    return rows


def _counted_from(start: int, sentence: str) -> str:
    """Rows are counted within the chunk by whoever checks them."""
    return re.sub(r"\brow (\d+)\b", lambda found: f"row {start + int(found[1])}", sentence)
