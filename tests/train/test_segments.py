from __future__ import annotations

import numpy as np
import pytest
import torch

from train import segments


@pytest.mark.parametrize("end", [2**15, 2**15 + 1])
def test_order_is_stable_for_narrow_and_wide_keys(end):
    keys = torch.randint(end - 50, end, (2000,), generator=torch.Generator().manual_seed(0))
    expected = np.argsort(keys.numpy(), kind="stable")
    assert np.array_equal(segments.ascending(keys, end).numpy(), expected)


def test_sums_are_those_of_the_named_rows_and_zero_for_a_part_without_any():
    table = torch.arange(8.0).reshape(4, 2)
    keys = torch.tensor([0, 0, 2])
    sums = segments.sums(
        table, torch.tensor([3, 1, 2]), segments.starts(keys, 4), torch.tensor([1.0, 2.0, -1.0])
    )
    expected = torch.stack([table[3] + 2 * table[1], torch.zeros(2), -table[2], torch.zeros(2)])
    assert torch.equal(sums, expected)


def test_distinct_keys_and_where_they_are():
    keys = torch.tensor([7, 2, 7, 9, 2, 2])
    found, places = segments.distinct(keys)
    assert found.tolist() == [2, 7, 9]
    assert torch.equal(found[places], keys)


def test_an_accelerator_repeats_the_last_key_instead_of_waiting_for_their_number(monkeypatch):
    keys = torch.tensor([7, 2, 7, 9, 2, 2])
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    found, places = segments.distinct(keys)
    assert found.tolist() == [2, 7, 9, 9, 9, 9]
    assert places.tolist() == [1, 0, 1, 2, 0, 0]
