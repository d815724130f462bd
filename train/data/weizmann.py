"""The Weizmann horses, 32 x 32 pixels, as SEAL's program cut and split them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from scipy import io as matlab
from scipy import sparse

from train.data.dataset import ImageShape, MultiLabelData
from train.data.files import read_bytes
from train.data.images import pixel_names
from train.errors import DataError

# Row numbers of horse.mat that SEAL's program validates and tests with; its other 160 train.
VALIDATION = (
    2, 11, 12, 19, 29, 33, 54, 63, 79, 95, 98, 118, 125, 131, 133, 146, 153, 155, 166, 167,
    169, 188, 195, 198, 206, 207, 214, 216, 232, 236, 256, 259, 260, 273, 277, 296, 307, 308,
    317, 326,
)  # fmt: skip
TEST = (
    0, 3, 6, 10, 13, 16, 17, 24, 25, 28, 31, 32, 34, 35, 37, 44, 46, 47, 48, 49, 56, 57, 58,
    60, 64, 68, 70, 72, 73, 75, 76, 77, 78, 81, 82, 86, 87, 88, 89, 93, 96, 101, 107, 108,
    111, 112, 117, 119, 121, 122, 124, 127, 130, 132, 135, 137, 138, 140, 141, 142, 147, 148,
    157, 161, 168, 170, 171, 172, 173, 178, 183, 187, 189, 192, 193, 199, 208, 209, 210, 211,
    212, 213, 224, 225, 227, 228, 230, 231, 237, 238, 240, 241, 244, 250, 252, 253, 255, 258,
    265, 266, 267, 268, 269, 271, 274, 278, 280, 284, 285, 291, 292, 299, 300, 301, 302, 306,
    310, 312, 313, 314, 315, 318, 320, 321, 322, 323, 324, 327,
)  # fmt: skip
SHAPE = ImageShape(height=32, width=32)


def read_weizmann(path: Path, *, name: str) -> MultiLabelData:
    """Read `imgs`, cells of (32, 32, 3) bytes, and `segs`, (rows, 1024) of 0 and 1.

    Raises:
        DataError: Not version 5, or other variables.
    """
    try:
        variables = matlab.loadmat(io.BytesIO(read_bytes(path)))
        images = np.stack(list(variables["imgs"].ravel()))  # (rows, 32, 32, 3)
        masks = variables["segs"].reshape(-1, SHAPE.width, SHAPE.height)
    except (ValueError, TypeError, KeyError, NotImplementedError) as error:
        raise DataError(f"{path} is not the horse.mat of SEAL ({error}): fetch it again") from error
    # MATLAB goes down a column first, and these masks were flattened by it.
    masks = masks.transpose(0, 2, 1).reshape(len(masks), -1)
    rows = np.arange(len(images))
    held_out = np.isin(rows, VALIDATION + TEST)
    return MultiLabelData(
        name=name,
        inputs=images.reshape(len(images), -1).astype(np.float32),
        targets=sparse.csr_array((masks > 0).astype(np.uint8)),
        labels=pixel_names(SHAPE),
        published={
            "train": rows[~held_out],
            "validation": np.array(VALIDATION),
            "test": np.array(TEST),
        },
        image=SHAPE,
    )
