"""A folder of pictures with masks: FOLDER/images and FOLDER/masks, a file each of the same name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import sparse

from train import imaging
from train.data.assemble import consecutive_parts
from train.data.dataset import ImageShape, MultiLabelData
from train.data.files import read_bytes
from train.errors import ConfigError, DataError

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp")
PARTS = ("train", "validation", "test")
LEAST_SIDE = 8


def is_image_folder(folder: Path) -> bool:
    """Whether a folder holds pictures, in parts or not."""
    return any((place / "images").is_dir() for place in (folder, folder / "train"))


def read_images(folder: Path, *, name: str | None = None, image_size: int = 32) -> MultiLabelData:
    """Read pictures and masks, all brought to `image_size` x `image_size` pixels.

    A published split is three folders `train`, `validation` (which may be missing) and `test`, each
    with its own `images` and `masks`.

    Raises:
        ConfigError: A size below 8.
        DataError: No pictures, a picture without a mask, or a file that is no picture.
    """
    if image_size < LEAST_SIDE:
        raise ConfigError(f"--image-size must be at least {LEAST_SIDE}, got {image_size}")
    shape = ImageShape(height=image_size, width=image_size)
    places = {part: folder / part for part in PARTS if (folder / part / "images").is_dir()}
    pairs = {part: _pairs(place) for part, place in (places or {"": folder}).items()}
    rows = [pair for part in pairs.values() for pair in part]
    images = [_read(image, imaging.rgb, shape) for image, _ in rows]
    masks = [_read(mask, imaging.mask, shape) for _, mask in rows]
    return MultiLabelData(
        name=name or folder.resolve().name,
        inputs=np.stack(images).reshape(len(rows), -1).astype(np.float32),
        targets=sparse.csr_array(np.stack(masks).reshape(len(rows), -1).astype(np.uint8)),
        labels=pixel_names(shape),
        published=consecutive_parts({part: len(found) for part, found in pairs.items()})
        if places
        else {},
        image=shape,
    )


def pixel_names(shape: ImageShape) -> tuple[str, ...]:
    """Names of the labels of images: line and column of each pixel."""
    return tuple(f"{row},{column}" for row in range(shape.height) for column in range(shape.width))


def _pairs(folder: Path) -> list[tuple[Path, Path]]:
    """Each picture with its mask, by name."""
    images, masks = (_pictures(folder / kind) for kind in ("images", "masks"))
    if not images:
        raise DataError(
            f"{folder / 'images'} holds no pictures: their names must end in {', '.join(ENDINGS)}"
        )
    lonely = sorted(set(images) ^ set(masks))
    if lonely:
        lacks = "masks" if lonely[0] in images else "images"
        raise DataError(
            f"{folder / lacks} has no picture named {lonely[0]!r}: every picture needs a mask of "
            "the same name, and every mask a picture"
        )
    return [(images[stem], masks[stem]) for stem in sorted(images)]


def _pictures(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder: pictures lie in images/, their masks in masks/")
    return {path.stem: path for path in folder.iterdir() if path.suffix.lower() in ENDINGS}


def _read(
    path: Path, reader: Callable[[bytes, int, int], np.ndarray], shape: ImageShape
) -> np.ndarray:
    try:
        return reader(read_bytes(path), shape.height, shape.width)
    except ValueError as error:
        raise DataError(f"{path} cannot be used ({error}): replace it") from error
