"""From pictures as people hold them (files, bytes, arrays) to the rows of a request."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labelwright_client._errors import InvalidArgument
from labelwright_client._rows import ArrayLike

Picture = Path | bytes | ArrayLike | Sequence[Any]
"""A file, the bytes of one, an array (height, width, 3), or lists of lines of pixels."""
Pictures = Sequence[Picture] | ArrayLike
EXPECTED = "expected a list of pictures, each a Path, the bytes of a file or an array"


def encode_pictures(pictures: Pictures) -> list[Any]:
    """Turn pictures into JSON values: files as base64, arrays as lists.

    Raises:
        InvalidArgument: One single picture, none, a text, or a file that cannot be read.
    """
    if isinstance(pictures, str | bytes | Path):
        raise InvalidArgument(f"{EXPECTED}, got one single picture: wrap it, segment([picture])")
    listed = pictures.tolist() if hasattr(pictures, "tolist") else pictures
    if not isinstance(listed, Sequence) or not listed:
        raise InvalidArgument(f"{EXPECTED}, got {type(pictures).__name__} of none: send one")
    return [_encoded(picture, number) for number, picture in enumerate(listed)]


def _encoded(picture: object, number: int) -> object:
    content = _content(picture) if isinstance(picture, Path) else picture
    if isinstance(content, bytes):
        return base64.b64encode(content).decode()
    unwrapped = picture.tolist() if hasattr(picture, "tolist") else picture
    if not isinstance(unwrapped, list | tuple):
        raise InvalidArgument(f"picture {number} is a {type(picture).__name__}: {EXPECTED}")
    return unwrapped


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}: {error.strerror}") from error
