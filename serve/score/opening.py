"""A file of rows, opened by its ending."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from serve.inputs import Rows
from serve.score.arrays import Parquet, open_array
from serve.score.lines import JsonLines, Table, Texts
from serve.score.sources import Source, Span, Wanted, read_checked
from train.errors import DataError

OPENERS: dict[str, Callable[[Path, Wanted], Source]] = {
    ".parquet": Parquet,
    ".csv": Table,
    ".tsv": Table,
    ".jsonl": JsonLines,
    ".txt": Texts,
    ".npz": open_array,
    ".npy": open_array,
}


class InputFile:
    """A file whose every mistake is one sentence.

    Raises:
        DataError: No such file or ending, or not what the ending says.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        opener = OPENERS.get(path.suffix.lower())
        if opener is None:
            raise DataError(f"{path} ends with none of {' '.join(OPENERS)}: convert it to one")
        self.path = path
        with _in_one_sentence(path):
            self._source = opener(path, wanted)

    def spans(self, chunk_rows: int) -> list[Span]:
        """All rows, cut into chunks."""
        with _in_one_sentence(self.path):
            return list(self._source.spans(chunk_rows))

    def read(self, span: Span) -> Rows:
        """The rows of one chunk, checked."""
        with _in_one_sentence(self.path):
            return read_checked(self._source, self.path, span)


@contextmanager
def _in_one_sentence(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 ({error.reason}): convert it") from error
    except (ValueError, EOFError, csv.Error, zipfile.BadZipFile, pa.ArrowException) as error:
        words = " ".join(str(error).split())[:200]
        raise DataError(
            f"{path} cannot be read as {path.suffix} ({words}): write it again"
        ) from error
