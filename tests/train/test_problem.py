from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy import sparse

from train.data import MultiLabelData, Split
from train.errors import ConfigError, DataError
from train.problem import make_problem, resolve_device

CPU = torch.device("cpu")
ROWS = np.arange(12)
SPLIT = Split(train=ROWS[:6], validation=ROWS[6:9], test=ROWS[9:], rule="by hand")


def data(inputs):
    targets = sparse.csr_array(np.tile(np.eye(3, dtype=np.uint8), (4, 1)))
    return MultiLabelData(name="some", inputs=inputs, targets=targets, labels=("a", "b", "c"))


def real_values():
    return np.random.default_rng(0).normal(5, 3, size=(12, 4)).astype(np.float32)


def test_scaling_is_fitted_on_the_training_rows_alone():
    x = real_values()
    x[:, 3] = 7  # constant: stays zero instead of becoming NaN
    problem = make_problem(data(x), SPLIT, CPU)
    train = problem.train.x.take(torch.arange(6)).numpy()
    np.testing.assert_allclose(train.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(train.std(0), [1, 1, 1, 0], atol=1e-5)
    test = problem.test.x.take(torch.arange(3)).numpy()
    expected = (x[9:] - x[:6].mean(0)) / np.where(x[:6].std(0) > 0, x[:6].std(0), 1)
    np.testing.assert_allclose(test, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("inputs", "scaling"),
    [
        (np.eye(12, 4, dtype=np.float32), "auto"),
        (real_values(), "none"),
        (sparse.csr_array(real_values()), "auto"),
    ],
    ids=["binary", "told not to", "sparse"],
)
def test_inputs_that_are_left_alone(inputs, scaling):
    assert make_problem(data(inputs), SPLIT, CPU, scaling).scaling is None


def test_sparse_inputs_cannot_be_standardised():
    with pytest.raises(ConfigError, match="--scaling standard would make sparse inputs dense"):
        make_problem(data(sparse.csr_array(real_values())), SPLIT, CPU, "standard")


def test_texts_that_were_not_encoded_are_refused():
    with pytest.raises(DataError, match="holds text"):
        make_problem(data(["word"] * 12), SPLIT, CPU)


def test_an_empty_part_is_refused():
    split = dataclasses.replace(SPLIT, validation=ROWS[:0])
    with pytest.raises(DataError, match="no rows in its validation part"):
        make_problem(data(real_values()), split, CPU)


def test_a_part_without_any_label_is_refused():
    some = data(real_values())
    targets = some.targets.toarray()
    targets[9:] = 0
    unlabelled = dataclasses.replace(some, targets=sparse.csr_array(targets))
    with pytest.raises(DataError, match="no labels in its test part"):
        make_problem(unlabelled, SPLIT, CPU)


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda"])
def test_a_device_that_is_not_there_is_refused(name):
    if torch.cuda.is_available() and name == "cuda":
        pytest.skip("this machine has a GPU")
    with pytest.raises(ConfigError, match=f"--device {name}"):
        resolve_device(name)


def test_auto_is_a_device():
    assert resolve_device("auto").type in ("cpu", "cuda")
