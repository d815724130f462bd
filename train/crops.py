"""Crops of images and masks that are flat rows: see `ImageShape`."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from train.data.dataset import ImageShape

CHANNELS = 3
OFFSETS, OFFSET_RANGE = (0, 2, 3, 4, 6, 8), 8
"""Where the test crops of a 32 x 32 image begin, along each side, and the last place possible."""


def as_images(rows: Tensor, height: int, width: int) -> Tensor:
    """Rows (batch, ...) of the channels of each pixel as (batch, channels, height, width).

    The channels of a pixel lie side by side in memory, where convolutions are fastest.
    """
    return rows.reshape(rows.shape[0], height, width, -1).permute(0, 3, 1, 2)


def crop_rows(rows: Tensor, image: ImageShape, top: int, left: int) -> Tensor:
    """The crops that begin there, of flat images or masks (batch, ...): flat again."""
    height, width = image.crop
    lines: Tensor = rows.unflatten(1, (image.height, image.width, -1))
    return lines[:, top : top + height, left : left + width].flatten(1)


def random_crops(x: Tensor, y: Tensor, image: ImageShape) -> tuple[Tensor, Tensor]:
    """A crop of each image and the same one of its mask, each place as likely as any other."""
    height, width = image.crop
    batch = len(x)
    top = torch.randint(image.height - height + 1, (batch, 1, 1), device=x.device)
    left = torch.randint(image.width - width + 1, (batch, 1, 1), device=x.device)
    lines = top + torch.arange(height, device=x.device)[None, :, None]
    columns = left + torch.arange(width, device=x.device)[None, None, :]
    pixels = (lines * image.width + columns).flatten(1)  # (batch, pixels of a crop)
    colours = x.unflatten(1, (-1, CHANNELS))
    chosen = colours.gather(1, pixels.unsqueeze(2).expand(-1, -1, CHANNELS))
    return chosen.flatten(1), y.gather(1, pixels)


def crop_places(image: ImageShape) -> list[tuple[int, int]]:
    """Where the crops of a whole image begin: 36 of them, fewer of an image that has no room."""
    height, width = image.crop
    return list(product(_starts(image.height - height), _starts(image.width - width)))


def _starts(last: int) -> list[int]:
    """Along one side, where `last` is the last place that leaves room for a crop."""
    return sorted({round(offset * last / OFFSET_RANGE) for offset in OFFSETS})


def corner_places(image: ImageShape) -> list[tuple[int, int]]:
    """Where the crops in the four corners of an image begin."""
    height, width = image.crop
    return list(product((0, image.height - height), (0, image.width - width)))
