from __future__ import annotations

import torch
from torch import nn

from train.nets.momentum import MomentumQueue


def queue_of(length=5, momentum=0.9):
    torch.manual_seed(0)
    return MomentumQueue(nn.Linear(3, 2), length=length, size=2, n_labels=4, momentum=momentum)


def numbered(first, count):
    z = torch.arange(first, first + count).float()
    return z[:, None].expand(count, 2), z[:, None].expand(count, 4)


def test_begins_empty_and_keeps_the_latest():
    queue = queue_of()
    assert queue.members().z.shape == (0, 2)
    first = 0
    for count in (2, 2, 2, 7, 1):
        queue.enqueue(*numbered(first, count))
        first += count
        members = queue.members()
        latest = list(range(max(0, first - 5), first))
        assert sorted(members.z[:, 0].tolist()) == latest
        torch.testing.assert_close(members.z[:, 0], members.y[:, 3])


def test_what_was_taken_from_the_queue_is_not_changed_by_it():
    queue = queue_of()
    queue.enqueue(*numbered(0, 5))
    before = queue.members()
    queue.enqueue(*numbered(5, 5))
    assert before.z[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_the_copy_follows_slowly_and_has_no_gradients():
    queue = queue_of(momentum=0.75)
    start = queue.copy.weight.clone()
    with torch.no_grad():
        queue.network.weight += 1
    queue.follow()
    torch.testing.assert_close(queue.copy.weight, start + 0.25)
    assert not any(weight.requires_grad for weight in queue.copy.parameters())
    assert all(weight.requires_grad for weight in queue.network.parameters())


def test_frozen_weights_are_left_alone():
    queue = queue_of()
    queue.network.bias.requires_grad_(False)
    with torch.no_grad():
        queue.network.bias += 1
    before = queue.copy.bias.clone()
    queue.follow()
    assert torch.equal(queue.copy.bias, before)


def test_goes_on_from_a_saved_state():
    saved, other = queue_of(), queue_of()
    saved.enqueue(*numbered(0, 7))
    with torch.no_grad():
        saved.copy.weight += 3
    other.load_state_dict(saved.state_dict())
    for queue in (saved, other):
        queue.enqueue(*numbered(7, 1))
    assert torch.equal(saved.members().z, other.members().z)
    assert torch.equal(saved.copy.weight, other.copy.weight)
