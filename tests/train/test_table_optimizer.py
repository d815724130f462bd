from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call

from train.table_optimizer import TableOptimizer

N_ROWS, WIDTH = 9, 4


class Lookup(nn.Module):
    """Rows of a table through a layer."""

    def __init__(self, *, sparse: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(N_ROWS, WIDTH, sparse=sparse)
        self.layer = nn.Linear(WIDTH, 2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layer(self.table(rows)).square().sum()


BATCHES = [torch.tensor(rows) for rows in ([1, 1, 5], [5, 8], [0], [1, 5, 7, 7], [8])]


def trained(steps: int, *, scale: float = 1.0, clip_norm: float = torch.inf):
    network = Lookup()
    optimizer = TableOptimizer(network, ("table.weight",), lr=0.05, clip_norm=clip_norm)
    for rows in BATCHES[:steps]:
        step(network, optimizer, rows, scale)
    return network, optimizer


def step(network, optimizer, rows, scale=1.0):
    numbers, places = rows.unique(return_inverse=True)
    borrowed = optimizer.borrow({"table.weight": numbers})
    values = {name: table.values for name, table in borrowed.items()}
    optimizer.step(scale * functional_call(network, values, (places,)), borrowed)


def test_rows_move_as_under_torchs_sparse_adam():
    network, _ = trained(len(BATCHES))
    other = Lookup(sparse=True)
    sparse = torch.optim.SparseAdam(other.table.parameters(), lr=0.05)
    dense = torch.optim.Adam(other.layer.parameters(), lr=0.05)
    for rows in BATCHES:
        sparse.zero_grad()
        dense.zero_grad()
        other(rows).backward()
        sparse.step()
        dense.step()
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name])


def test_rows_that_are_not_borrowed_stay_as_they_are_to_the_bit():
    before = Lookup().table.weight
    network, optimizer = trained(len(BATCHES))
    touched = torch.cat(BATCHES).unique().tolist()
    for row in range(N_ROWS):
        assert torch.equal(network.table.weight[row], before[row]) == (row not in touched)
    assert all(not moment[2].any() for moment in optimizer.moments["table.weight"])


def test_all_rows_can_be_borrowed_at_once():
    one, other = Lookup(), Lookup()
    for network, numbers in ((one, None), (other, torch.arange(N_ROWS))):
        optimizer = TableOptimizer(network, ("table.weight",), lr=0.05)
        borrowed = optimizer.borrow({"table.weight": numbers})
        values = {"table.weight": borrowed["table.weight"].values}
        optimizer.step(functional_call(network, values, (torch.arange(N_ROWS),)), borrowed)
    assert torch.equal(one.table.weight, other.table.weight)
    assert not torch.equal(one.table.weight, Lookup().table.weight)


def test_large_gradients_are_clipped_to_their_norm():
    plain, _ = trained(1, clip_norm=1.0)
    scaled, optimizer = trained(1, scale=1e4, clip_norm=1.0)
    torch.testing.assert_close(plain.table.weight, scaled.table.weight, rtol=1e-4, atol=1e-5)
    gradients = [optimizer.moments["table.weight"][0] / 0.1]
    gradients += [parameter.grad for parameter in scaled.layer.parameters()]
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    assert float(norm) == pytest.approx(1.0, abs=1e-3)


def test_a_saved_state_goes_on_as_if_nothing_had_happened():
    whole, _ = trained(len(BATCHES))
    network, optimizer = trained(2)
    weights = {name: value.clone() for name, value in network.state_dict().items()}
    resumed = Lookup()
    resumed.load_state_dict(weights)
    other = TableOptimizer(resumed, ("table.weight",), lr=0.05)
    other.load_state_dict(optimizer.state_dict())
    for rows in BATCHES[2:]:
        step(resumed, other, rows)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name])


def test_the_rate_of_rows_halves_when_the_score_stalls():
    network, optimizer = trained(1)
    for _ in range(7):
        optimizer.end_epoch(0.5)
    before = network.table.weight.detach().clone()
    step(network, optimizer, torch.tensor([2]))
    moved = (network.table.weight[2] - before[2]).abs().max()
    # Of a row that is new at step 2: lr sqrt(1 - b2^2) / (1 - b1^2) (1 - b1) / sqrt(1 - b2).
    expected = 0.025 * (1 - 0.999**2) ** 0.5 / (1 - 0.9**2) * 0.1 / 0.001**0.5
    assert float(moved.detach()) == pytest.approx(expected, rel=1e-3)
