from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from train.batches import LEAST_WIDTH, SparseBatch, batch_order, to_rows

CPU = torch.device("cpu")


@given(
    seed=st.integers(0, 1000),
    rows=st.integers(1, 8),
    width=st.integers(1, 8),
    density=st.floats(0, 1),
    index=st.lists(st.integers(0, 7), max_size=12),
)
def test_rows_taken_from_csr_equal_those_of_the_dense_matrix(seed, rows, width, density, index):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((rows, width)) < density, rng.normal(size=(rows, width)), 0)
    dense = dense.astype(np.float32)
    wanted = torch.tensor([i % rows for i in index], dtype=torch.int64)
    taken = to_rows(sparse.csr_array(dense), CPU).take(wanted)
    assert torch.equal(taken, torch.from_numpy(dense[wanted.numpy()]))
    assert torch.equal(taken, to_rows(dense, CPU).take(wanted))


def sparse_matrix(density: float, shape=(9, LEAST_WIDTH)) -> np.ndarray:
    rng = np.random.default_rng(3)
    return np.where(rng.random(shape) < density, rng.normal(size=shape), 0).astype(np.float32)


def test_a_sparse_batch_multiplies_like_the_dense_one_and_so_does_its_gradient():
    dense = sparse_matrix(0.05)
    wanted = torch.tensor([4, 0, 4, 8])
    batch = to_rows(sparse.csr_array(dense), CPU).batch(wanted)
    assert isinstance(batch, SparseBatch)
    assert len(batch) == 4
    expected = torch.from_numpy(dense[wanted.numpy()])
    assert torch.equal(batch.to_dense(), expected)
    weight = torch.randn(LEAST_WIDTH, 2, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(batch @ weight, expected.double() @ weight)
    assert torch.autograd.gradcheck(lambda w: batch @ w, (weight,))


def test_an_empty_matrix_is_sparse_and_a_full_one_dense():
    empty = to_rows(sparse.csr_array(np.zeros((3, LEAST_WIDTH), np.float32)), CPU).batch(
        torch.arange(3)
    )
    assert torch.equal(empty @ torch.ones(LEAST_WIDTH, 2), torch.zeros(3, 2))
    full = to_rows(sparse.csr_array(sparse_matrix(0.5)), CPU).batch(torch.arange(3))
    assert isinstance(full, torch.Tensor)


def test_narrow_rows_are_dense():
    narrow = sparse_matrix(0.01, (9, LEAST_WIDTH - 1))
    assert isinstance(to_rows(sparse.csr_array(narrow), CPU).batch(torch.arange(3)), torch.Tensor)


def test_an_epoch_visits_every_row_once_in_an_order_of_its_own():
    one = torch.cat(batch_order(100, 32, seed=1, epoch=0))
    assert sorted(one.tolist()) == list(range(100))
    assert torch.equal(one, torch.cat(batch_order(100, 32, seed=1, epoch=0)))
    assert not torch.equal(one, torch.cat(batch_order(100, 32, seed=1, epoch=1)))
    assert not torch.equal(one, torch.cat(batch_order(100, 32, seed=2, epoch=0)))


def test_a_narrowed_batch_has_only_columns_with_values_and_the_same_product():
    dense = sparse_matrix(0.001)
    dense[0, 5] = dense[8, 5] = 2.0
    batch = to_rows(sparse.csr_array(dense), CPU).batch(torch.tensor([0, 3, 8]))
    columns, narrow = batch.narrowed()
    used = np.flatnonzero(dense[[0, 3, 8]].any(axis=0))
    assert columns.tolist() == used.tolist()
    assert torch.equal(narrow.to_dense(), torch.from_numpy(dense[[0, 3, 8]][:, used]))
    weight = torch.randn(LEAST_WIDTH, 2, dtype=torch.float64)
    torch.testing.assert_close(narrow @ weight[columns], batch @ weight)
    part = weight[columns].requires_grad_()
    assert torch.autograd.gradcheck(lambda w: narrow @ w, (part,))


def test_label_lists_are_the_cells_that_are_on():
    dense = np.array([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]], dtype=np.float32)
    wanted = torch.tensor([2, 0, 1, 0])
    for rows in (to_rows(sparse.csr_array(dense), CPU), to_rows(dense, CPU)):
        lists = rows.lists(wanted)
        assert len(lists) == 4
        assert lists.shape == (4, 4)
        assert lists.rows.tolist() == [0, 1, 1, 3, 3]
        assert lists.labels.tolist() == [0, 1, 3, 1, 3]


@given(
    n_rows=st.integers(1, 130),
    batch_size=st.integers(1, 12),
    least=st.integers(1, 12),
    has_lengths=st.booleans(),
)
def test_no_batch_has_too_few_rows_and_no_row_is_lost(n_rows, batch_size, least, has_lengths):
    lengths = torch.arange(n_rows) % 7 if has_lengths else None
    batches = batch_order(n_rows, batch_size, seed=1, epoch=0, lengths=lengths, least=least)
    assert torch.equal(torch.cat(batches).sort().values, torch.arange(n_rows))
    assert all(len(batch) >= min(least, batch_size, n_rows) for batch in batches)
    assert all(len(batch) < batch_size + least for batch in batches)
    if least == 1 and not has_lengths:
        assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
