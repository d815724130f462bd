"""Folders of pictures, and the Weizmann horses."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from train import imaging
from train.data import load_dataset, make_split
from train.errors import ConfigError, DataError


def picture(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array.astype(np.uint8)).save(path)


def folder_of(place: Path, count: int = 5) -> Path:
    rng = np.random.default_rng(0)
    for i in range(count):
        picture(place / "images" / f"{i}.png", rng.integers(0, 256, (20, 16, 3)))
        picture(place / "masks" / f"{i}.png", 255 * (rng.random((20, 16)) < 0.5))
    return place


def test_pictures_and_masks_become_rows(tmp_path):
    red = np.zeros((8, 8, 3))
    red[2:4, 1:7, 0] = 200
    mask = np.zeros((8, 8))
    mask[2:4, 1:7] = 255
    for i in range(2):
        picture(tmp_path / "images" / f"{i}.png", red)
        picture(tmp_path / "masks" / f"{i}.bmp", mask)
    data = load_dataset(str(tmp_path), image_size=8)
    assert data.task == "segmentation"
    assert data.name == tmp_path.name
    np.testing.assert_array_equal(data.inputs[0].reshape(8, 8, 3), red)
    np.testing.assert_array_equal(data.targets.toarray()[1].reshape(8, 8), mask > 0)
    assert data.labels[9] == "1,1"


def test_pictures_are_brought_to_one_size(tmp_path):
    data = load_dataset(str(folder_of(tmp_path)))
    assert data.inputs.shape == (5, 32 * 32 * 3)
    assert data.targets.shape == (5, 1024)
    assert 0.3 < data.targets.mean() < 0.7


def test_parts_are_the_published_split(tmp_path):
    for part, count in {"train": 3, "validation": 2, "test": 1}.items():
        folder_of(tmp_path / part, count)
    split = make_split(load_dataset(str(tmp_path)))
    assert split.sizes() == (3, 2, 1)


def test_masks_of_zeros_and_ones_are_taken_as_they_are(tmp_path):
    picture(tmp_path / "a.png", np.eye(4))
    np.testing.assert_array_equal(imaging.mask((tmp_path / "a.png").read_bytes(), 4, 4), np.eye(4))


def test_mistakes_are_told_in_one_sentence(tmp_path):
    folder = folder_of(tmp_path)
    with pytest.raises(ConfigError, match="--image-size must be at least 8, got 4"):
        load_dataset(str(folder), image_size=4)
    (folder / "masks" / "3.png").rename(folder / "masks" / "9.png")
    with pytest.raises(DataError, match="masks has no picture named '3'"):
        load_dataset(str(folder))
    (folder / "masks" / "9.png").rename(folder / "masks" / "3.png")
    (folder / "images" / "2.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"2\.png cannot be used \(it is no picture"):
        load_dataset(str(folder))


def test_run_lengths_count_off_first():
    assert imaging.run_lengths(np.array([[0, 1], [1, 0]])) == [1, 2, 1]
    assert imaging.run_lengths(np.array([[1, 1], [1, 1]])) == [0, 4]
    assert imaging.run_lengths(np.zeros((2, 3))) == [6]


horses = pytest.mark.skipif(
    not (Path(os.environ.get("LABELWRIGHT_DATA") or ".") / "weizmann_horses").is_dir(),
    reason="the Weizmann horses are not on this machine",
)


@horses
def test_horses_are_split_as_seal_split_them():
    data = load_dataset("weizmann-horses")
    split = make_split(data)
    assert split.sizes() == (160, 40, 128)
    assert np.unique(np.concatenate([split.train, split.validation, split.test])).size == 328
    assert round(data.targets.mean(), 4) == 0.2765


@horses
def test_masks_of_horses_lie_where_colours_change():
    """A mask that was turned would fit its picture no better than that of another horse."""
    data = load_dataset("weizmann-horses")
    images = data.inputs.reshape(-1, 32, 32, 3).mean(3)
    masks = data.targets.toarray().reshape(-1, 32, 32)

    def edges(grids: np.ndarray) -> np.ndarray:
        grids = grids.astype(float)
        return np.abs(np.diff(grids, axis=1))[:, :, 1:] + np.abs(np.diff(grids, axis=2))[:, 1:]

    def agreement(some: np.ndarray) -> float:
        return float((edges(images) * (edges(some) > 0)).sum() / (edges(some) > 0).sum())

    assert agreement(masks) > 1.2 * agreement(masks.transpose(0, 2, 1))
