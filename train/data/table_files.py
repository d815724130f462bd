"""Columns of a table file, and where each of its rows stands in it."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from train.archives import LARGEST_RATIO
from train.data.files import bare_suffix, open_text, read_bytes
from train.errors import DataError

FREE_CELLS = 2**22
"""Of a Parquet file: so many may be claimed by any, as equal cells take no room."""


@dataclass(frozen=True)
class Table:
    """Cells by column name, in file order; `places` says where each row is, as 'line 7'."""

    path: Path
    columns: Mapping[str, Sequence[object]]
    places: Sequence[str]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.places)

    def error(self, row: int, sentence: str) -> DataError:
        """What is wrong with a row, with file and line number."""
        return DataError(f"{self.path}, {self.places[row]}: {sentence}")


def read_columns(path: Path) -> Table:
    """Read all columns of a .csv, .tsv, .jsonl or .parquet file; all cells of CSV are strings."""
    reader = READERS.get(bare_suffix(path))
    if reader is None:
        raise DataError(f"{path} is not a table: known endings are {', '.join(READERS)}")
    table = reader(path)
    if table.n_rows == 0:
        raise DataError(f"{path} has no rows")
    return table


def _read_csv(path: Path) -> Table:
    return _read_delimited(path, ",")


def _read_tsv(path: Path) -> Table:
    return _read_delimited(path, "\t")


def _read_delimited(path: Path, delimiter: str) -> Table:
    with open_text(path) as file, _long_cells():
        rows, places = [], []
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            header = _check_header(path, next(reader, []))
            for row in reader:
                if row:
                    rows.append(row)
                    places.append(f"line {reader.line_num}")
                if row and len(row) != len(header):
                    raise DataError(
                        f"{path}, {places[-1]}: expected {len(header)} cells, got {len(row)}"
                    )
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: {error}") from error
    columns = zip(*rows, strict=True) if rows else [()] * len(header)
    return Table(path, dict(zip(header, columns, strict=True)), places)


def _check_header(path: Path, header: list[str]) -> list[str]:
    names = [name.strip() for name in header]
    if not any(names):
        raise DataError(f"{path}, line 1: expected the column names, got an empty line")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{path}, line 1: the column {repeated[0]!r} is named twice: rename one")
    if len(names) == 1 and ";" in names[0]:
        raise DataError(
            f"{path}, line 1: columns are separated by ';': save with commas, or as .tsv"
        )
    return names


@contextmanager
def _long_cells() -> Iterator[None]:
    """Let a cell be as long as it likes: the csv module stops at 131072 characters."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _read_jsonl(path: Path) -> Table:
    with open_text(path) as file:
        records, places = _records(path, file)
    names = list(dict.fromkeys(name for record in records for name in record))
    columns = {name: [record.get(name) for record in records] for name in names}
    return Table(path, columns, places)


def _records(path: Path, file: TextIO) -> tuple[list[dict[str, object]], list[str]]:
    records, places = [], []
    for number, line in enumerate(file, start=1):
        if line.isspace():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}, line {number}: not JSON ({error.msg})") from error
        except (ValueError, RecursionError) as error:  # a number of thousands of digits
            raise DataError(
                f"{path}, line {number}: JSON of such depth or with such numbers is not read"
            ) from error
        if not isinstance(record, dict):
            raise DataError(
                f"{path}, line {number}: expected an object in {{}}, got {line.strip()[:40]!r}"
            )
        records.append(record)
        places.append(f"line {number}")
    return records, places


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow as pa  # noqa: PLC0415 - optional, and only Parquet needs it
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise DataError(f"reading {path} needs pyarrow: pip install pyarrow") from error
    try:
        raw = read_bytes(path)
        about = parquet.read_metadata(pa.BufferReader(raw))
        most = max(FREE_CELLS, LARGEST_RATIO * len(raw))
        if about.num_rows * about.num_columns > most:
            raise DataError(
                f"{path} claims {about.num_rows} rows of {about.num_columns} columns, and "
                f"{len(raw)} bytes may hold {most} cells at most: write it as .csv"
            )
        content = parquet.read_table(pa.BufferReader(raw))
        columns = {name: content.column(name).to_pylist() for name in content.column_names}
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} is not a readable Parquet file ({reason})") from error
    return Table(path, columns, [f"row {number}" for number in range(1, content.num_rows + 1)])


READERS: Mapping[str, Callable[[Path], Table]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
