"""Open a data file whether it is packed or not: .gz, .xz, .bz2 and .zip are read directly."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from train.archives import BROKEN, ArchiveError, check_unpacked
from train.errors import DataError

PACKED = (".gz", ".xz", ".bz2", ".zip")
CHUNK_BYTES = 2**20


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, unpacked; damage and absence become one sentence."""
    try:
        with _open(path) as file:
            yield file
    except ArchiveError as error:
        raise DataError(f"{path} is refused: {error}; unpack it yourself to read it") from error
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist: check the path or the --data-dir") from error
    except (
        EOFError,
        lzma.LZMAError,
        zlib.error,
        zipfile.BadZipFile,
        gzip.BadGzipFile,
    ) as error:
        raise DataError(f"{path} is damaged or cut short ({error}): fetch it again") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


@contextmanager
def open_text(path: Path, encoding: str = "utf-8-sig") -> Iterator[TextIO]:
    """Open a file for reading text, unpacked, universal newlines; a byte-order mark is skipped."""
    with open_bytes(path) as file:
        try:
            yield io.TextIOWrapper(file, encoding=encoding)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path} is not {encoding} text ({error.reason}): convert it"
            ) from error


def read_bytes(path: Path) -> bytes:
    """The whole file, unpacked."""
    with open_bytes(path) as file:
        return file.read()


def decode(raw: bytes, path: Path, first_line: int = 1) -> str:
    """Bytes of a file that begin at line `first_line` as text; a bad byte is named by its line."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = first_line + raw.count(b"\n", 0, error.start)
        raise DataError(f"{path}, line {line}: not UTF-8 text: convert the file") from error


def bare_suffix(path: Path) -> str:
    """The ending that tells the format: `.arff` for `x.arff` and for `x.arff.gz`."""
    return _unpacked_name(path).suffix.lower()


def bare_stem(path: Path) -> str:
    """The file's name without its format and packing endings: `x` for `x.arff.gz`."""
    return _unpacked_name(path).stem


def _unpacked_name(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    suffix = path.suffix.lower()
    if suffix == ".zip":
        with _archive(path) as archive, _only_member(path, archive) as member:
            yield cast(BinaryIO, member)
        return
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
    with path.open("rb") as raw:
        if suffix not in openers:
            yield raw
            return
        with openers[suffix](raw, "rb") as file:
            yield cast(BinaryIO, io.BufferedReader(_Watched(file, raw), CHUNK_BYTES))


class _Watched(io.RawIOBase):
    """What is unpacked, looked at on the way: a bomb is stopped before it fills the memory."""

    def __init__(self, file: BinaryIO, packed: BinaryIO) -> None:
        self._file, self._packed, self._unpacked = file, packed, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any buffer
        piece = self._file.read(len(buffer))
        buffer[: len(piece)] = piece
        self._unpacked += len(piece)
        check_unpacked(self._unpacked, self._packed.tell())
        return len(piece)

    def readall(self) -> bytes:
        # That of the base class goes by pieces of 8 KiB.
        pieces = iter(lambda: self.read(CHUNK_BYTES) or b"", b"")
        return b"".join(pieces)


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except BROKEN as error:
        raise DataError(f"{path} is damaged or cut short ({error}): fetch it again") from error


def _only_member(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipExtFile:
    names = [name for name in archive.namelist() if not name.endswith("/")]
    if len(names) != 1:
        raise DataError(f"{path} holds {len(names)} files: pack exactly one file in a .zip")
    about = archive.getinfo(names[0])
    check_unpacked(about.file_size, about.compress_size)
    try:
        return cast(zipfile.ZipExtFile, archive.open(names[0]))
    except BROKEN as error:  # also a password, or a way of packing that Python does not know
        raise DataError(f"{path} cannot be unpacked ({error}): unpack it yourself") from error
