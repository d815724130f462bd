"""Parquet files and arrays of numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from serve.errors import InvalidInputError
from serve.inputs import DenseRows, Rows, SparseRows
from serve.rows import check_stored, parse_rows, rows_of_array, scattered
from serve.score.sources import Span, Wanted, places
from train.errors import DataError


class Parquet:
    """Columns; the row group that was read last is kept for the chunks that share it."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.path, self.wanted = path, wanted
        self._file = pq.ParquetFile(path)
        metadata, schema = self._file.metadata, self._file.schema_arrow
        self._columns = [schema.names[place] for place in places(path, schema.names, wanted)]
        for name in self._columns:
            self._check_type(name, schema.field(name).type)
        counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._starts = np.cumsum([0, *counts])
        self._last: tuple[int, Any] = (-1, None)

    def _check_type(self, name: str, kind: Any) -> None:  # noqa: ANN401 - Arrow has no types
        types = pa.types
        if self.wanted.is_text:
            is_right = types.is_string(kind) or types.is_large_string(kind)
        else:
            is_right = types.is_integer(kind) or types.is_floating(kind)
        if not is_right:
            expected = "texts" if self.wanted.is_text else "numbers"
            raise DataError(f"{self.path}: column {name!r} must hold {expected}, got {kind}")

    def spans(self, chunk_rows: int) -> Iterator[Span]:
        """Without regard to row groups, so that chunks depend on the rows alone."""
        return even_spans(int(self._starts[-1]), chunk_rows)

    def read(self, span: Span) -> Rows:
        """The columns of all row groups that have rows of the chunk."""
        end = span.start + span.rows
        first = int(np.searchsorted(self._starts, span.start, side="right")) - 1
        last = int(np.searchsorted(self._starts, end, side="left"))
        parts = []
        for group in range(first, last):
            start = int(self._starts[group])
            low, high = max(span.start - start, 0), min(end, int(self._starts[group + 1])) - start
            parts.append(self._group(group).slice(low, high - low))
        table = pa.concat_tables(parts)
        if self.wanted.is_text:
            texts = table.column(0).to_pylist()
            return parse_rows(texts, self.wanted.rules, with_booleans=False)
        return rows_of_array(_matrix(table), self.wanted.rules)

    def _group(self, group: int) -> Any:  # noqa: ANN401 - Arrow has no types
        if self._last[0] != group:
            table = self._file.read_row_group(group, columns=self._columns, use_threads=False)
            self._last = (group, table.select(self._columns))
        return self._last[1]


def _matrix(table: Any) -> NDArray[np.float32]:  # noqa: ANN401 - Arrow has no types
    """Columns of numbers as (rows, columns)."""
    matrix = np.empty((table.num_rows, table.num_columns), dtype=np.float32)
    for place, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if column.null_count:
            row = pc.index(column.is_null(), value=True).as_py()
            raise InvalidInputError(f"row {row} must have a number in column {name!r}, got null")
        with np.errstate(over="ignore"):  # infinite then, which is refused
            matrix[:, place] = column.to_numpy()
    return matrix


class Array:
    """Rows (rows, width) of a .npy file, or of a .npz file that holds them as `x`."""

    def __init__(self, path: Path, wanted: Wanted, rows: NDArray[Any]) -> None:
        if rows.ndim != 2 or rows.dtype.kind not in "fiu":
            raise DataError(
                f"{path} must hold an array of numbers (rows, width), "
                f"got {rows.dtype} of shape {rows.shape}"
            )
        self._rows, self._rules = rows, wanted.rules

    def spans(self, chunk_rows: int) -> Iterator[Span]:
        """Equal parts."""
        return even_spans(len(self._rows), chunk_rows)

    def read(self, span: Span) -> Rows:
        """A part of the array."""
        return rows_of_array(
            np.ascontiguousarray(self._rows[span.start : span.start + span.rows]), self._rules
        )


class Stored:
    """The three arrays of a CSR matrix."""

    def __init__(self, path: Path, wanted: Wanted, parts: Sequence[NDArray[Any]]) -> None:
        self._starts, self._columns, self._values = parts
        self._rules = wanted.rules
        is_right = (
            all(part.ndim == 1 for part in parts)
            and len(self._starts) > 0
            and self._starts[0] == 0
            and (np.diff(self._starts) >= 0).all()
            and self._starts[-1] == len(self._columns) == len(self._values)
        )
        if not is_right:
            raise DataError(f"{path}: indptr, indices and data make no CSR matrix; save it again")

    def spans(self, chunk_rows: int) -> Iterator[Span]:
        """Equal parts."""
        return even_spans(len(self._starts) - 1, chunk_rows)

    def read(self, span: Span) -> Rows:
        """Stored values, in full for a model that takes rows in full."""
        starts = self._starts[span.start : span.start + span.rows + 1].astype(np.int64)
        stored = slice(starts[0], starts[-1])
        with np.errstate(over="ignore"):
            values = self._values[stored].astype(np.float32)
        rows = SparseRows(np.diff(starts), self._columns[stored].astype(np.int64), values)
        _check_columns(rows, self._rules.width)
        check_stored(rows, self._rules.width)
        return (
            rows if self._rules.kind == "sparse" else DenseRows(scattered(rows, self._rules.width))
        )


def _check_columns(rows: SparseRows, width: int) -> None:
    wrong = np.flatnonzero((rows.columns < 0) | (rows.columns >= width))
    if wrong.size:
        row = np.repeat(np.arange(len(rows)), rows.counts)[wrong[0]]
        raise InvalidInputError(
            f"row {row} has column {rows.columns[wrong[0]]}, this model's columns are 0 to "
            f"{width - 1}"
        )


def open_array(path: Path, wanted: Wanted) -> Array | Stored:
    """A .npy file, mapped, or a .npz file with rows as `x` or as the parts of a CSR matrix."""
    if wanted.is_text:
        raise DataError(f"{path} holds numbers, and the bundle takes texts: give .txt or .csv")
    if path.suffix.lower() == ".npy":
        return Array(path, wanted, np.load(path, mmap_mode="r", allow_pickle=False))
    with path.open("rb") as file:
        arrays = _archive(file)
    for prefix in ("x_", ""):  # of training data, and of scipy's `save_npz`
        names = [prefix + name for name in ("indptr", "indices", "data")]
        if all(name in arrays for name in names):
            return Stored(path, wanted, [arrays[name] for name in names])
    chosen = ["x"] if "x" in arrays else list(arrays)
    if len(chosen) != 1:
        raise DataError(f"{path} holds {', '.join(chosen)}: expected the rows as array 'x'")
    return Array(path, wanted, arrays[chosen[0]])


def _archive(file: BinaryIO) -> dict[str, NDArray[Any]]:
    with np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def even_spans(rows: int, chunk_rows: int) -> Iterator[Span]:
    """Chunks of the same size, the last one maybe smaller."""
    for start in range(0, rows, chunk_rows):
        yield Span(start, min(chunk_rows, rows - start))
