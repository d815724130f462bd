"""Bodies other than plain JSON: packed ones, and rows as the bytes of an array."""

from __future__ import annotations

import ast
import zlib
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from serve.errors import InvalidInputError, MalformedBodyError, TooLargeError, UnsupportedTypeError
from serve.rows import Features

NPY_MAGIC = b"\x93NUMPY"
# What a row may be sent as; everything else would need a decision about rounding.
NPY_TYPES: dict[object, np.dtype[np.floating]] = {
    "<f4": np.dtype(np.float32),
    "<f8": np.dtype(np.float64),
}
# Both formats are told apart by their first bytes.
GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
PACKINGS = (b"gzip", b"x-gzip", b"deflate")


def unpacked(body: bytes, encoding: bytes, max_bytes: int) -> bytes:
    """Undo `content-encoding`; what would be larger than the limit is not unpacked to its end.

    Raises:
        UnsupportedTypeError: An encoding other than gzip and deflate.
        MalformedBodyError: Not what the header says.
        TooLargeError: More than `max_bytes` once unpacked.
    """
    name = encoding.strip().lower()
    if name == b"identity":
        return body
    if name not in PACKINGS:
        shown = encoding.decode("latin-1")[:40]
        raise UnsupportedTypeError(
            f"content-encoding may be gzip, deflate or absent, got {shown!r}"
        )
    unpacker = zlib.decompressobj(GZIP_OR_ZLIB)
    try:
        # One byte more than is allowed tells a body that fits from one that goes on.
        plain = unpacker.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise MalformedBodyError(f"the body is not packed as its header says: {error}") from error
    if len(plain) > max_bytes:
        raise TooLargeError(
            f"a request body may have at most {max_bytes} bytes once unpacked: "
            "send fewer rows at once"
        )
    if not unpacker.eof or unpacker.unused_data:
        raise MalformedBodyError("the packed body is not one whole stream: send all of it, once")
    return plain


def raw_rows(body: bytes, width: int) -> Features:
    """Rows as the bytes of little-endian float32 numbers, row after row -> (rows, width).

    Raises:
        InvalidInputError: Not a whole number of rows.
    """
    if not body or len(body) % (4 * width):
        raise InvalidInputError(
            f"the body must be rows of {width} float32 numbers, {4 * width} bytes each, "
            f"got {len(body)} bytes"
        )
    return np.frombuffer(body, dtype="<f4").reshape(-1, width)


def npy_rows(body: bytes, width: int) -> NDArray[np.floating]:
    """Rows as `numpy.save` writes them -> (rows, width); one row may be one-dimensional.

    The header is read here and not by numpy, which is slow at it and can be told to unpickle.

    Raises:
        MalformedBodyError: Not this format.
        InvalidInputError: Another type, order or shape than rows of the model.
    """
    header, start = _npy_header(body)
    kind, shape = header.get("descr"), header.get("shape")
    if (
        not isinstance(kind, str)
        or kind not in NPY_TYPES
        or header.get("fortran_order") is not False
    ):
        raise InvalidInputError(
            f"the array must be float32 or float64 in C order, got {str(kind)[:40]!r}"
            f"{' in Fortran order' if header.get('fortran_order') else ''}"
        )
    if shape == (width,):
        shape = (1, width)
    if not _is_shape(shape) or len(shape) != 2 or shape[1] != width or shape[0] < 1:
        raise InvalidInputError(f"the array must have the shape (rows, {width}), got {shape}")
    dtype = NPY_TYPES[kind]
    size = shape[0] * width * dtype.itemsize
    if len(body) - start != size:
        raise MalformedBodyError(
            f"the array must have {size} bytes after its header, got {len(body) - start}"
        )
    return np.frombuffer(body, dtype, offset=start).reshape(shape)


def _is_shape(value: object) -> TypeGuard[tuple[int, ...]]:
    return isinstance(value, tuple) and all(type(length) is int for length in value)


def _npy_header(body: bytes) -> tuple[dict[str, object], int]:
    size_bytes = 2 if body[6:7] == b"\x01" else 4
    text_start = 8 + size_bytes
    start = text_start + int.from_bytes(body[8:text_start], "little")
    if body[:6] != NPY_MAGIC or len(body) < start or start > 4096:
        raise MalformedBodyError("the body is not an .npy file: send what numpy.save writes")
    try:
        header = ast.literal_eval(body[text_start:start].decode("latin-1").strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise MalformedBodyError("the header of the .npy body cannot be read") from error
    if not isinstance(header, dict):
        raise MalformedBodyError("the header of the .npy body must be a dict")
    return header, start
