"""A running mean of the weights: it usually predicts better than those of the last step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

HEAD_START = 10
"""Steps that the weights a run begins with count for, so that the mean soon forgets them."""


class RunningMean:
    """After step t: mean <- d mean + (1 - d) weights; d = (1 + t) / (10 + t), `decay` at most."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.restart(network)

    def restart(self, network: nn.Module) -> None:
        """Begin with the weights of a network, which is followed from now on."""
        self.network, self.steps = network, 0
        self.weights = {name: weight.detach().clone() for name, weight in _trained(network)}

    @torch.no_grad()
    def follow(self) -> None:
        """Take in the weights after a step."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (HEAD_START + self.steps))
        now = [weight.detach() for _, weight in _trained(self.network)]
        torch._foreach_lerp_(list(self.weights.values()), now, 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the network have the mean for a while."""
        own = {name: weight.detach().clone() for name, weight in _trained(self.network)}
        self._put(self.weights)
        try:
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, weights: dict[str, Tensor]) -> None:
        for name, weight in _trained(self.network):
            weight.copy_(weights[name])

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {"steps": self.steps, "weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.steps = state["steps"]
        for name, weight in self.weights.items():
            weight.copy_(state["weights"][name])


def _trained(network: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for name, weight in network.named_parameters():
        if weight.requires_grad:
            yield name, weight
