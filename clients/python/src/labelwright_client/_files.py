"""Files of rows for the command line, read as the model that they are for takes its rows.

Lines are read as they are sent, so that a file of any length will do.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelwright_client._errors import InvalidArgument
from labelwright_client._rows import csr_rows
from labelwright_client._types import InputSpec

DELIMITERS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True)
class Source:
    """Rows for `predict_many`, and how many they are."""

    rows: Any
    total: int


def read_rows(path: Path, spec: InputSpec, text_column: str = "text") -> Source:
    """Open a file by its ending; of a table with a header, the columns that the model knows.

    Raises:
        InvalidArgument: No such file or ending, or a line that the model cannot take; the latter
            comes with the line, when its turn has come.
    """
    read = READERS.get(path.suffix.lower())
    if read is None:
        raise InvalidArgument(f"{path} ends with none of {' '.join(READERS)}: convert it to one")
    try:
        return read(path, spec, text_column)
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        # Counting went through all of it, so that no line can fail later.
        raise InvalidArgument(f"{path} is not UTF-8 ({error.reason}): convert it") from error


def _read_table(path: Path, spec: InputSpec, text_column: str) -> Source:
    rows = _table_rows(path, spec, text_column)
    with path.open(encoding="utf-8-sig", newline="") as file:
        total = sum(1 for cells in csv.reader(file, delimiter=_delimiter(path)) if cells) - 1
    return Source(rows, max(total, 0))


def _table_rows(path: Path, spec: InputSpec, text_column: str) -> Iterator[Any]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, delimiter=_delimiter(path))
        header = next(lines, [])
        places = _places(path, header, spec, text_column)
        for cells in lines:
            if not cells:  # an empty line
                continue
            if len(cells) != len(header):
                raise InvalidArgument(
                    f"{path}, line {lines.line_num}: expected {len(header)} cells, got {len(cells)}"
                )
            if spec.kind == "text":
                yield cells[places[0]]
            else:
                yield [_cell(cells[i], header[i], path, lines.line_num) for i in places]


def _places(path: Path, header: list[str], spec: InputSpec, text_column: str) -> list[int]:
    """Which columns of a table make a row."""
    if spec.kind != "text" and spec.names is None:
        return list(range(len(header)))
    wanted = (text_column,) if spec.kind == "text" else spec.names or ()
    missing = [name for name in wanted if name not in header]
    if missing:
        words = ", ".join(map(repr, header[:8])) or "no header"
        raise InvalidArgument(
            f"{path} lacks the column {missing[0]!r} that the model takes: it has {words}"
        )
    return [header.index(name) for name in wanted]


def _cell(cell: str, column: str, path: Path, line: int) -> float:
    try:
        return float(cell)
    except ValueError as error:
        raise InvalidArgument(
            f"{path}, line {line}: expected a number in column {column!r}, got {cell!r}"
        ) from error


def _read_jsonl(path: Path, spec: InputSpec, text_column: str) -> Source:
    def rows() -> Iterator[Any]:
        for number, line in _lines(path):
            try:
                value = json.loads(line)
            except ValueError as error:
                raise InvalidArgument(f"{path}, line {number}: expected JSON: {error}") from error
            yield _json_row(value, spec, text_column, f"{path}, line {number}")

    return Source(rows(), sum(1 for _ in _lines(path)))


def _json_row(value: Any, spec: InputSpec, text_column: str, place: str) -> Any:  # noqa: ANN401 - JSON
    """A row itself, or an object that has its parts by name."""
    if not isinstance(value, dict):
        return value
    if spec.kind != "text" and all(key.isdecimal() for key in value):
        return value  # {column number: value}
    wanted = (text_column,) if spec.kind == "text" else spec.names or ()
    missing = [name for name in wanted if name not in value]
    if missing or not wanted:
        expected = f"the field {missing[0]!r}" if missing else "column numbers as names"
        raise InvalidArgument(
            f"{place}: expected {expected}, as the model takes it, got {', '.join(value)}"
        )
    return value[text_column] if spec.kind == "text" else [value[name] for name in wanted]


def _read_text(path: Path, spec: InputSpec, _: str) -> Source:
    if spec.kind != "text":
        raise InvalidArgument(f"{path} holds texts, and the model takes numbers: send .csv or .npz")

    def rows() -> Iterator[str]:
        with path.open(encoding="utf-8-sig") as file:
            for line in file:
                yield line.rstrip("\n")

    return Source(rows(), sum(1 for _ in rows()))


def _read_array(path: Path, spec: InputSpec, _: str) -> Source:
    if spec.kind == "text":
        raise InvalidArgument(f"{path} holds numbers, and the model takes texts: send .txt or .csv")
    try:
        import numpy as np  # noqa: PLC0415 - for these files only
    except ImportError as error:
        raise InvalidArgument(f"{path} needs numpy: pip install numpy") from error
    try:
        if path.suffix.lower() == ".npy":
            return _array(path, np.load(path, mmap_mode="r", allow_pickle=False))
        with np.load(path, allow_pickle=False) as arrays:
            return _of_archive(path, dict(arrays))
    except (ValueError, KeyError) as error:
        raise InvalidArgument(f"{path} cannot be read as arrays: {error}") from error


def _of_archive(path: Path, arrays: dict[str, Any]) -> Source:
    """Rows as `x`, as a CSR matrix of training data (`x_data`, ...) or of scipy's `save_npz`."""
    for prefix in ("x_", ""):
        parts = [arrays.get(prefix + name) for name in ("indptr", "indices", "data")]
        if all(part is not None for part in parts):
            return Source(csr_rows(*parts), len(parts[0]) - 1)  # type: ignore[arg-type]
    names = ["x"] if "x" in arrays else list(arrays)
    if len(names) != 1:
        raise InvalidArgument(f"{path} holds {', '.join(names)}: expected the rows as array 'x'")
    return _array(path, arrays[names[0]])


def _array(path: Path, array: Any) -> Source:  # noqa: ANN401 - naming the type would need numpy
    if array.ndim != 2:
        raise InvalidArgument(f"{path}: expected an array (rows, width), got shape {array.shape}")
    return Source(array, len(array))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not empty, with their numbers."""
    with path.open(encoding="utf-8-sig") as file:
        yield from ((number, line) for number, line in enumerate(file, 1) if line.strip())


def _delimiter(path: Path) -> str:
    return DELIMITERS[path.suffix.lower()]


Reader = Callable[[Path, InputSpec, str], Source]
READERS: dict[str, Reader] = {
    ".csv": _read_table,
    ".tsv": _read_table,
    ".jsonl": _read_jsonl,
    ".txt": _read_text,
    ".npz": _read_array,
    ".npy": _read_array,
}


def first_rows(source: Source, count: int) -> Any:  # noqa: ANN401 - as in `Source`
    """The first rows, to be sent in one request."""
    if hasattr(source.rows, "shape"):
        return source.rows[:count]
    rows: Iterable[Any] = source.rows
    return [row for _, row in zip(range(count), rows, strict=False)]
