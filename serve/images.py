"""Pictures in requests, and masks in answers."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serve.errors import InvalidInputError
from serve.kinds import kind_of
from train import imaging

FORMATS = ("png", "rle")
WHITE = imaging.WHITE
CHANNELS = 3
DATA_URL = "base64,"


def is_flat(row: object) -> bool:
    """Whether a row is a flat list of numbers, or no image at all."""
    is_nested = isinstance(row, list) and bool(row) and isinstance(row[0], list)
    return not (is_nested or isinstance(row, str))


def parse_images(inputs: list[Any], height: int, width: int) -> NDArray[np.float32]:
    """Pictures as base64, or arrays (height, width, 3) of 0 to 255: (rows, height * width * 3).

    Pictures may have any size and are brought to that of the model; arrays must have it.

    Raises:
        InvalidInputError: A row that is neither, or of another size.
    """
    images = [_image(index, row, height, width) for index, row in enumerate(inputs)]
    return np.stack(images).reshape(len(images), -1).astype(np.float32)


def _image(index: int, row: object, height: int, width: int) -> NDArray[Any]:
    if isinstance(row, str):
        return _picture(index, row, height, width)
    if not isinstance(row, list):
        raise InvalidInputError(
            f"row {index} must be a picture as base64 or an array, got {kind_of(row)}"
        )
    try:
        image = np.array(row, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        image = np.zeros(0, np.float32)
    if image.shape != (height, width, CHANNELS) or not ((image >= 0) & (image <= WHITE)).all():
        raise InvalidInputError(
            f"row {index} must be an array of {height} x {width} x {CHANNELS} numbers of 0 to "
            f"{WHITE}"
        )
    return image


def _picture(index: int, text: str, height: int, width: int) -> NDArray[Any]:
    # A browser writes data:image/png;base64,... before the content.
    content = text.partition(DATA_URL)[2] if text.startswith("data:") else text
    try:
        return imaging.rgb(base64.b64decode(content, validate=True), height, width)
    except (binascii.Error, ValueError) as error:
        raise InvalidInputError(
            f"row {index} must be a PNG or JPEG picture as base64: {error}"
        ) from error


def mask_answers(
    scores: NDArray[np.float32],
    threshold: np.float32 | NDArray[np.float32],
    size: tuple[int, int],
    form: str,
) -> Iterator[dict[str, Any]]:
    """The mask of each row's scores (rows, pixels), and the share of pixels that it covers."""
    for row in scores:
        mask = (row >= threshold).reshape(size)
        encoded: Any = imaging.run_lengths(mask)
        if form == "png":
            encoded = base64.b64encode(imaging.png_of_mask(mask)).decode()
        yield {"mask": encoded, "coverage": round(float(mask.mean()), 6)}
