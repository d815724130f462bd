"""Small problems that every method can be tried on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from train.batches import LEAST_WIDTH
from train.data import MultiLabelData, Split
from train.data.dataset import ImageShape
from train.data.images import pixel_names
from train.evidence import KEPT_SCORES, Record
from train.problem import Problem, make_problem

N_ROWS, N_FEATURES, N_LABELS = 64, 12, 6


def small_data(*, is_sparse: bool = False) -> MultiLabelData:
    """Labels that follow from the features; row 0 has none of them and row 1 has all."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(N_ROWS, N_FEATURES)).astype(np.float32)
    y = (x @ rng.normal(size=(N_FEATURES, N_LABELS)) > 0.5).astype(np.uint8)
    y[0], y[1] = 0, 1
    return MultiLabelData(
        name="small",
        inputs=sparse.csr_array(np.maximum(x, 0)) if is_sparse else x,
        targets=sparse.csr_array(y),
        labels=tuple(f"label-{i}" for i in range(N_LABELS)),
        features=tuple(f"feature-{i}" for i in range(N_FEATURES)),
    )


def small_problem(*, is_sparse: bool = False) -> Problem:
    rows = np.arange(N_ROWS)
    split = Split(train=rows[:32], validation=rows[32:48], test=rows[48:], rule="by hand")
    return make_problem(small_data(is_sparse=is_sparse), split, torch.device("cpu"))


@pytest.fixture(params=[False, True], ids=["dense", "sparse"])
def problem(request: pytest.FixtureRequest) -> Problem:
    return small_problem(is_sparse=request.param)


def small_images() -> MultiLabelData:
    """8 x 8 pixels; the mask is where the image is red."""
    rng = np.random.default_rng(6)
    shape = ImageShape(height=8, width=8)
    masks = rng.random((N_ROWS, 1, 4, 4)) < 0.4
    masks = masks.repeat(2, 2).repeat(2, 3).reshape(N_ROWS, 64)
    pixels = rng.integers(0, 90, size=(N_ROWS, 64, 3))
    pixels[..., 0] += 160 * masks
    return MultiLabelData(
        name="small-images",
        inputs=pixels.reshape(N_ROWS, -1).astype(np.float32),
        targets=sparse.csr_array(masks.astype(np.uint8)),
        labels=pixel_names(shape),
        image=shape,
    )


@pytest.fixture
def image_problem() -> Problem:
    rows = np.arange(N_ROWS)
    split = Split(train=rows[:16], validation=rows[16:24], test=rows[24:32], rule="by hand")
    return make_problem(small_images(), split, torch.device("cpu"))


@pytest.fixture
def wide_problem() -> Problem:
    """Rows so wide and sparse that they stay so in a batch."""
    data = small_data()
    wide = sparse.lil_array((N_ROWS, LEAST_WIDTH), dtype=np.float32)
    wide[:, :N_FEATURES] = data.inputs
    rows = np.arange(N_ROWS)
    split = Split(train=rows[:32], validation=rows[32:48], test=rows[48:], rule="by hand")
    return make_problem(replace(data, inputs=wide.tocsr(), features=()), split, torch.device("cpu"))


@pytest.fixture
def tokenizer_json() -> str:
    from tiny_text import tiny_tokenizer

    return tiny_tokenizer().to_str()


@pytest.fixture
def dense_problem() -> Problem:
    return small_problem()


def make_record(method: str = "ce", seed: int = 0, value: float = 0.4, **changes: object) -> Record:
    plain = Record(
        dataset="genbase",
        method=method,
        preset="auto",
        changed="",
        seed=seed,
        split="60/20/20",
        split_seed=0,
        fraction=1.0,
        epochs=9,
        best_epoch=4,
        seconds=1.5,
        command=f"python -m train {method} --dataset genbase --seed {seed}",
        commit="0123abc",
        scores=dict.fromkeys(KEPT_SCORES, value),
    )
    return replace(plain, **changes)


@pytest.fixture
def record() -> Callable[..., Record]:
    return make_record
