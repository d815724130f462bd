"""Arrays and packed bytes from strangers: what a file claims is checked before it is allocated.

Needs numpy alone, so that training, exporting and serving read with the same care.
"""

from __future__ import annotations

import io
import lzma
import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

FREE_BYTES = 32 * 2**20
"""So much may come out of any packed file."""
LARGEST_RATIO = 200
"""Beyond it only so many times as went in: tables of text and of 0 and 1 stay well below."""


BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, NotImplementedError, RuntimeError, ValueError),
)
"""What `zipfile` raises for damaged archives, or for packings that it does not know."""


class ArchiveError(ValueError):
    """A file that claims more than it holds, or that unpacks to far more than it is."""


def most_unpacked(packed: int) -> int:
    """Bytes that may come out of so many packed ones."""
    return max(FREE_BYTES, LARGEST_RATIO * packed)


def check_unpacked(unpacked: int, packed: int) -> None:
    """Refuse a decompression bomb.

    Raises:
        ArchiveError: More came, or would come, out of the packed bytes than may.
    """
    if unpacked > most_unpacked(packed):
        raise ArchiveError(
            f"{packed} packed bytes give more than {most_unpacked(packed)}, the limit is "
            f"{LARGEST_RATIO} times as many and {FREE_BYTES // 2**20} MiB in any case"
        )


def read_arrays(file: Path | BinaryIO) -> dict[str, np.ndarray]:
    """All arrays of a .npz file; nothing is ever unpickled.

    Raises:
        ArchiveError: An array of objects, one that claims another size than its bytes have, or
            arrays far larger than the file.
        OSError: It cannot be read, or is damaged.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            check_unpacked(
                sum(member.file_size for member in members),
                sum(member.compress_size for member in members),
            )
            return {
                member.filename.removesuffix(".npy"): _array(archive, member) for member in members
            }
    except ArchiveError:
        raise
    except BROKEN as error:
        raise OSError(f"no .npz file that can be unpacked: {error}") from error


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    content = archive.read(member)
    shape, in_columns, dtype, start = _header(member.filename, content)
    size = math.prod(shape) * dtype.itemsize
    if size != len(content) - start:
        raise ArchiveError(
            f"{member.filename} claims {size} bytes of numbers and holds {len(content) - start}"
        )
    flat = np.frombuffer(content, dtype, offset=start)
    return flat.reshape(shape, order="F" if in_columns else "C").copy()


def _header(name: str, content: bytes) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, whether columns come first, type, and where the numbers begin."""
    file = io.BytesIO(content)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    try:
        shape, in_columns, dtype = readers[npy.read_magic(file)](file)
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ArchiveError(f"{name} is no array that numpy wrote") from error
    if dtype.hasobject:
        raise ArchiveError(
            f"{name} holds an array that only unpickling could read: save numbers, and names as "
            "numpy.array(names, dtype=str)"
        )
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ArchiveError(f"{name} has the shape {shape}")
    return shape, in_columns, dtype, file.tell()
