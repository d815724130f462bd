"""Train every method for a step on an accelerator that does not exist.

Run as a script, in a process of its own: registering the device changes torch for good. Tensors
have shapes and devices but no values, so whatever mixes CPU and accelerator, or reads a value back
in the middle of a step, fails here as it would be slow or fail on a GPU.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from scipy import sparse
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import backend_registration

from train import methods
from train.data import MultiLabelData, Split
from train.problem import make_problem


def fake_device() -> torch.device:
    backend_registration._setup_privateuseone_for_python_backend("gpu")
    torch.nn.Module.to = move
    return torch.device("gpu")


def move(module: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """Stand in for Module.to, which cannot exchange the tensors of parameters without values."""
    for part in module.modules():
        for name, value in part.named_parameters(recurse=False):
            part._parameters[name] = torch.nn.Parameter(value.data.to(device), value.requires_grad)
        for name, value in part._buffers.items():
            part._buffers[name] = value.to(device)
    return module


def small_problem(device: torch.device):
    rng = np.random.default_rng(0)
    data = MultiLabelData(
        name="small",
        inputs=rng.normal(size=(24, 7)).astype(np.float32),
        targets=sparse.csr_array((rng.random((24, 5)) < 0.4).astype(np.uint8)),
        labels=tuple("abcde"),
    )
    rows = np.arange(24)
    split = Split(train=rows[:8], validation=rows[8:16], test=rows[16:], rule="by hand")
    return make_problem(data, split, device)


def make_mistake(kind: str, loss: torch.Tensor) -> None:
    """What the test of this test does on purpose."""
    if kind == "--cpu-operand":
        loss * torch.ones(3)
    else:
        loss[0].item()


def main(name: str, *mistakes: str) -> None:
    device = fake_device()
    with FakeTensorMode(allow_non_fake_inputs=True):
        problem = small_problem(device)
        module = methods.load(name)
        method = module.build(module.Config(), problem)
        x = torch.randn(8, 7, device=device)
        y = torch.zeros(8, 5, device=device)
        losses = method.step(x, y)
        for kind in mistakes:
            make_mistake(kind, losses["cross_entropy"].expand(3))
        assert all(loss.device.type == "gpu" for loss in losses.values())
        assert method.predictor(x).device.type == "gpu"


if __name__ == "__main__":
    main(*sys.argv[1:])
