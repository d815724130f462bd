"""Pictures to numbers and masks to pictures, on the host.

Training and serving run this very code, so it needs numpy and Pillow alone.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from train.errors import needs_extra

MOST_PIXELS = 1 << 24
"""Of a picture; more are refused before they are unpacked."""
WHITE = 255


def rgb(content: bytes, height: int, width: int) -> np.ndarray:
    """A PNG, JPEG or other picture, brought to this size: (height, width, 3) uint8.

    Raises:
        ValueError: It is no picture, or far too large.
    """
    return np.asarray(_opened(content).convert("RGB").resize((width, height), _bilinear()))


def mask(content: bytes, height: int, width: int) -> np.ndarray:
    """A picture of a mask, brought to this size: (height, width) of 0 and 1.

    What is at least half bright belongs to it; in a picture of 0 and 1 alone, what is 1.

    Raises:
        ValueError: It is no picture, or far too large.
    """
    picture = np.asarray(_opened(content).convert("L"))
    bright = picture >= (1 if picture.max(initial=0) <= 1 else (WHITE + 1) // 2)
    image = _pillow().fromarray(bright.astype(np.uint8))
    nearest = _pillow().Resampling.NEAREST
    return np.asarray(image.resize((width, height), nearest))


def png_of_mask(mask: np.ndarray) -> bytes:
    """A mask (height, width) as a black and white PNG."""
    stream = io.BytesIO()
    _pillow().fromarray(mask.astype(np.uint8) * WHITE).save(stream, "PNG")
    return stream.getvalue()


def run_lengths(mask: np.ndarray) -> list[int]:
    """Lengths of runs of a mask line after line: first of what is off, then on, then off ..."""
    flat = np.concatenate([[False], np.asarray(mask, bool).ravel()])
    changes = np.flatnonzero(flat[1:] != flat[:-1])
    lengths: list[int] = np.diff(np.concatenate([[0], changes, [len(flat) - 1]])).tolist()
    return lengths


def _opened(content: bytes) -> Any:  # noqa: ANN401 - Pillow's own
    try:
        image = _pillow().open(io.BytesIO(content))
        if image.width * image.height > MOST_PIXELS:
            raise ValueError(f"it has {image.width} x {image.height} pixels, far too many")
        image.load()
    except (OSError, SyntaxError) as error:  # what Pillow raises for damaged files
        raise ValueError("it is no picture that can be read") from error
    return image


def _bilinear() -> Any:  # noqa: ANN401 - Pillow's own
    return _pillow().Resampling.BILINEAR


def _pillow() -> Any:  # noqa: ANN401 - Pillow's own
    with needs_extra("images", "reading pictures"):
        from PIL import Image  # noqa: PLC0415 - may be missing
    return Image
