"""Tables, JSON and texts in lines: a first pass finds the bytes of each chunk.

Numbers of a table are parsed by Arrow; Python looks at cells one by one only to find a wrong one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from serve.errors import InvalidInputError
from serve.inputs import Rows
from serve.rows import parse_rows, rows_of_array
from serve.score.sources import Span, Wanted, places
from train.errors import DataError

DELIMITERS = {".csv": ",", ".tsv": "\t"}
BOM = b"\xef\xbb\xbf"
BLOCK = 2**20


class Table:
    """Cells between commas or tabs under a header; empty lines are no rows."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.path, self.wanted = path, wanted
        self._delimiter = DELIMITERS[path.suffix.lower()]
        records = self._records(_after_bom(path))
        self._first, self._header = next(records, (0, []))
        self._places = places(path, self._header, wanted)

    def _records(self, begin: int) -> Iterator[tuple[int, list[str]]]:
        """Every record that is not empty, and where it ends."""
        end = begin

        def lines() -> Iterator[str]:
            nonlocal end
            with self.path.open("rb") as file:
                file.seek(begin)
                for line in file:
                    end += len(line)
                    yield line.decode()

        # It asks for no line more than the record needs.
        for cells in csv.reader(lines(), delimiter=self._delimiter):
            if cells:
                yield end, cells

    def spans(self, chunk_rows: int) -> Iterator[Span]:
        """Lines where no cell is quoted, else records, which may have several lines."""
        if _holds(self.path, b'"'):
            ends: Iterable[int] = (end for end, _ in self._records(self._first))
        else:
            ends = _line_ends(self.path, self._first, lambda line: bool(line.strip(b"\r\n")))
        return _grouped(self._first, ends, chunk_rows)

    def read(self, span: Span) -> Rows:
        """Texts of one column, or numbers of several."""
        raw = _bytes(self.path, span)
        if self.wanted.is_text:
            texts = [cells[self._places[0]] for cells in self._cells(raw)]
            return parse_rows(texts, self.wanted.rules, with_booleans=False)
        return rows_of_array(self._numbers(raw), self.wanted.rules)

    def _cells(self, raw: bytes) -> Iterator[list[str]]:
        reader = csv.reader(io.StringIO(raw.decode(), newline=""), delimiter=self._delimiter)
        for row, cells in enumerate(filter(None, reader)):
            if len(cells) != len(self._header):
                raise InvalidInputError(
                    f"row {row} must have {len(self._header)} cells as the header has, "
                    f"got {len(cells)}"
                )
            yield cells

    def _numbers(self, raw: bytes) -> NDArray[np.float64]:
        """(rows, width)."""
        names = [str(place) for place in range(len(self._header))]
        chosen = [names[place] for place in self._places]
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(raw),
                arrow_csv.ReadOptions(
                    column_names=names, use_threads=False, block_size=len(raw) + 1
                ),
                arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=b'"' in raw),
                arrow_csv.ConvertOptions(
                    include_columns=chosen,
                    column_types=dict.fromkeys(chosen, pa.float64()),
                    null_values=[],
                ),
            )
        except pa.ArrowInvalid:
            rows = enumerate(self._cells(raw))
            return np.array(
                [[self._number(row, cells, at) for at in self._places] for row, cells in rows]
            )
        return np.column_stack([column.to_numpy() for column in table.columns])

    def _number(self, row: int, cells: list[str], place: int) -> float:
        try:
            return float(cells[place])
        except ValueError as error:
            raise InvalidInputError(
                f"row {row} must have a number in column {self._header[place]!r}, "
                f"got {cells[place][:40]!r}"
            ) from error


class JsonLines:
    """A row in each line: a list, a text, or an object with its parts; empty lines are no rows."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.path, self.wanted = path, wanted

    def spans(self, chunk_rows: int) -> Iterator[Span]:
        """By lines."""
        first = _after_bom(self.path)
        ends = _line_ends(self.path, first, lambda line: bool(line.strip()))
        return _grouped(first, ends, chunk_rows)

    def read(self, span: Span) -> Rows:
        """Parse the lines as the rows of a request."""
        raw = _bytes(self.path, span)
        lines = [line for line in raw.split(b"\n") if line.strip()]
        rows = [self._row(number, line) for number, line in enumerate(lines)]
        with_booleans = b"true" in raw or b"false" in raw
        return parse_rows(rows, self.wanted.rules, with_booleans=with_booleans)

    def _row(self, number: int, line: bytes) -> Any:  # noqa: ANN401 - JSON
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise InvalidInputError(f"row {number} is not JSON: {error.msg}") from error
        if not isinstance(value, dict):
            return value
        names = self.wanted.names or ()
        if not self.wanted.is_text and (not names or all(key.isdecimal() for key in value)):
            return value  # {column number: value}
        missing = next((name for name in names if name not in value), None)
        if missing is not None:
            known = ", ".join(map(repr, list(value)[:8])) or "none"
            raise InvalidInputError(f"row {number} must have the field {missing!r}, got {known}")
        return value[names[0]] if self.wanted.is_text else [value[name] for name in names]


class Texts:
    """A text in each line, the empty ones too."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        if not wanted.is_text:
            raise DataError(
                f"{path} holds texts, and the bundle takes numbers: give .csv, .parquet or .npz"
            )
        self.path, self.wanted = path, wanted

    def spans(self, chunk_rows: int) -> Iterator[Span]:
        """By lines."""
        first = _after_bom(self.path)
        return _grouped(first, _line_ends(self.path, first, lambda _: True), chunk_rows)

    def read(self, span: Span) -> Rows:
        """Lines without their ends."""
        lines = _bytes(self.path, span).decode().removesuffix("\n").split("\n")
        texts = [line.removesuffix("\r") for line in lines]
        return parse_rows(texts, self.wanted.rules, with_booleans=False)


def _grouped(first: int, ends: Iterable[int], chunk_rows: int) -> Iterator[Span]:
    """Chunks of rows that end there."""
    start, rows, begin, end = 0, 0, first, first
    for end in ends:
        rows += 1
        if rows == chunk_rows:
            yield Span(start, rows, begin, end)
            start, rows, begin = start + rows, 0, end
    if rows:
        yield Span(start, rows, begin, end)


def _line_ends(path: Path, first: int, is_row: Callable[[bytes], bool]) -> Iterator[int]:
    end = first
    with path.open("rb") as file:
        file.seek(first)
        for line in file:
            end += len(line)
            if is_row(line):
                yield end


def _after_bom(path: Path) -> int:
    with path.open("rb") as file:
        return len(BOM) if file.read(len(BOM)) == BOM else 0


def _holds(path: Path, byte: bytes) -> bool:
    with path.open("rb") as file:
        return any(byte in block for block in iter(lambda: file.read(BLOCK), b""))


def _bytes(path: Path, span: Span) -> bytes:
    with path.open("rb") as file:
        file.seek(span.begin)
        return file.read(span.end - span.begin)
