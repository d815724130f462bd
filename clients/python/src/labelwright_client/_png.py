"""Reading the one kind of PNG that servers send: 8 bits of grey a pixel, not interlaced."""

from __future__ import annotations

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY = (8, 0, 0, 0, 0)
"""Bit depth, colour type, compression, filter and interlace method in the header."""
MOST_PIXELS = 1 << 24
"""As many as servers take; what claims more is not unpacked."""


def read_grey(png: bytes) -> tuple[int, int, bytes]:
    """Height, width, and a byte for each pixel, line after line.

    Raises:
        ValueError: It is something else, or damaged.
    """
    try:
        chunks = _chunks(png)
        width, height, *kind = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
        if tuple(kind) != GREY or not 0 < width * height <= MOST_PIXELS:
            raise ValueError("it is no picture of 8 bits of grey")
        size = (width + 1) * height
        packed = zlib.decompressobj()
        content = packed.decompress(chunks[b"IDAT"], size)
    except (KeyError, struct.error, zlib.error) as error:
        raise ValueError("it is no whole PNG") from error
    if len(content) != size:
        raise ValueError("it is no whole PNG")
    return height, width, _unfiltered(content, width)


def _chunks(png: bytes) -> dict[bytes, bytes]:
    """What each kind of chunk holds, together."""
    found: dict[bytes, bytes] = {}
    place = len(SIGNATURE)
    while png.startswith(SIGNATURE) and place < len(png):
        length, kind = struct.unpack_from(">I4s", png, place)
        found[kind] = found.get(kind, b"") + png[place + 8 : place + 8 + length]
        place += length + 12  # with its length, its kind and its checksum
    return found


def _unfiltered(content: bytes, width: int) -> bytes:
    """Lines as they were before each was written as differences from its neighbours."""
    pixels, above = bytearray(), bytes(width)
    for start in range(0, len(content), width + 1):
        rule, line = content[start], bytearray(content[start + 1 : start + 1 + width])
        if rule:
            _undo(rule, line, above)
        pixels += line
        above = bytes(line)
    return bytes(pixels)


def _undo(rule: int, line: bytearray, above: bytes) -> None:
    if rule > 4:
        raise ValueError(f"it has a line of filter {rule}")
    left = corner = 0
    for place, up in enumerate(above):
        guess = (0, left, up, (left + up) // 2, _paeth(left, up, corner))[rule]
        line[place] = left = (line[place] + guess) & 255
        corner = up


def _paeth(left: int, up: int, corner: int) -> int:
    """Which neighbour is nearest to left + up - corner; between equals the first named."""
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))
