from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from train.data.formats import read_path
from train.data.npz import read_npz
from train.errors import DataError

X = np.array([[1.5, 0, 2], [0, 0, 3]])
Y = np.array([[1, 0], [1, 1]])


def parts(key, matrix):
    csr = sparse.csr_array(matrix)
    return {
        f"{key}_data": csr.data,
        f"{key}_indices": csr.indices,
        f"{key}_indptr": csr.indptr,
        f"{key}_shape": np.array(csr.shape),
    }


def save(folder, **arrays):
    np.savez_compressed(folder / "rows.npz", **arrays)
    return folder / "rows.npz"


def test_dense_arrays(tmp_path):
    data = read_path(save(tmp_path, x=X, y=Y, labels=np.array(["a", "b"])))
    np.testing.assert_array_equal(data.inputs, X.astype(np.float32))
    assert data.inputs.dtype == np.float32
    np.testing.assert_array_equal(data.targets.toarray(), Y)
    assert (data.name, data.labels, data.features) == ("rows", ("a", "b"), ())


def test_csr_arrays_stay_sparse(tmp_path):
    names = np.array(["f", "g", "h"])
    data = read_npz(save(tmp_path, **parts("x", X), **parts("y", Y), features=names), name="mine")
    assert sparse.issparse(data.inputs)
    np.testing.assert_array_equal(data.inputs.toarray(), X.astype(np.float32))
    np.testing.assert_array_equal(data.targets.toarray(), Y)
    assert data.targets.dtype == np.uint8
    assert (data.name, data.labels, data.features) == ("mine", ("0", "1"), ("f", "g", "h"))


def test_unsorted_indices_and_explicit_zeros_are_put_right(tmp_path):
    y = {
        "y_data": np.array([1, 1, 0]),
        "y_indices": np.array([1, 0, 1]),
        "y_indptr": np.array([0, 2, 3]),
        "y_shape": np.array([2, 2]),
    }
    targets = read_npz(save(tmp_path, x=X, **y)).targets
    assert targets.toarray().tolist() == [[1, 1], [0, 0]]
    assert targets.nnz == 2
    assert targets.has_sorted_indices


BROKEN_PARTS = {**parts("y", Y), "y_indices": np.array([0, 0, 9])}
TWICE = {**parts("y", Y), "y_indices": np.array([0, 0, 0])}


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": X}, "must hold 'y', or y_data.*'y_data' is missing; it holds x"),
        ({"x": X, "y": Y[:1]}, "x has 2 rows but y has 1"),
        ({"x": X, "y": Y + 1}, "y must hold 0 and 1 only, got 2"),
        ({"x": X[0], "y": Y}, "x must be .rows, columns., got shape"),
        ({"x": X.astype(str), "y": Y}, "x must hold numbers"),
        ({"x": X * np.nan, "y": Y}, "x holds NaN"),
        ({"x": X, "y": Y, "labels": np.array(["a"])}, "labels must be 2 names"),
        ({"x": X, "y": Y, "labels": np.array([1, 2])}, "labels must be 2 names"),
        ({"x": X, **BROKEN_PARTS}, "the arrays of y are no CSR matrix"),
        ({"x": X, **TWICE}, "y gives an entry twice"),
        ({"x": X, "y": Y, "labels": np.array(["a", "b"], dtype=object)}, "only unpickling"),
    ],
)
def test_mistakes(tmp_path, arrays, sentence):
    with pytest.raises(DataError, match=sentence):
        read_npz(save(tmp_path, **arrays))


def test_files_that_are_no_npz(tmp_path):
    path = tmp_path / "rows.npz"
    path.write_bytes(b"hello")
    with pytest.raises(DataError, match=r"not a \.npz file"):
        read_npz(path)
    good = save(tmp_path, x=np.arange(600.0).reshape(300, 2), y=np.ones((300, 1)))
    damaged = bytearray(good.read_bytes())
    damaged[80:90] = b"\0" * 10
    good.write_bytes(damaged)
    with pytest.raises(DataError, match="damaged"):
        read_npz(good)
