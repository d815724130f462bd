"""A slow copy of a network and a queue of what it said, as in MoCo (He et al., CVPR 2020)."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from train.losses import Members


class MomentumQueue:
    """The last vectors of a slow copy of a network, with the label sets of their rows.

    The copy moves by `theta_k <- momentum theta_k + (1 - momentum) theta`, without gradients. The
    queue begins empty.
    """

    def __init__(
        self, network: nn.Module, *, length: int, size: int, n_labels: int, momentum: float
    ) -> None:
        self.network = network
        self.copy = copy.deepcopy(network).requires_grad_(False)
        self.momentum = momentum
        device = next(network.parameters()).device
        self.z = torch.zeros(length, size, device=device)
        self.y = torch.zeros(length, n_labels, device=device)
        # Known on the host, so that no step has to ask the device how full the queue is.
        self.enqueued = 0

    def members(self) -> Members:
        """What the queue holds now, (up to length, size)."""
        filled = min(self.enqueued, len(self.z))
        return Members(self.z[:filled].clone(), self.y[:filled].clone())

    @torch.no_grad()
    def follow(self) -> None:
        """Move the copy a little towards the network."""
        pairs = zip(self.copy.parameters(), self.network.parameters(), strict=True)
        trained = [(slow, fast) for slow, fast in pairs if fast.requires_grad]
        torch._foreach_lerp_(
            [slow for slow, _ in trained], [fast for _, fast in trained], 1 - self.momentum
        )

    def enqueue(self, z: Tensor, y: Tensor) -> None:
        """Add vectors (batch, size) of rows with labels (batch, labels) in place of the oldest."""
        length = len(self.z)
        z, y = z[-length:], y[-length:]
        places = (self.enqueued + torch.arange(len(z), device=z.device)) % length
        self.z.index_copy_(0, places, z)
        self.y.index_copy_(0, places, y)
        self.enqueued += len(z)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {
            "copy": self.copy.state_dict(),
            "z": self.z.clone(),
            "y": self.y.clone(),
            "enqueued": self.enqueued,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.copy.load_state_dict(state["copy"])
        self.z.copy_(state["z"])
        self.y.copy_(state["y"])
        self.enqueued = state["enqueued"]
