"""Train every method for a step on an accelerator that does not exist.

Run as a script: each line of its input is the words of a step, which runs in a child of its own,
as registering the device changes torch for good; each line of its output is what the child
complained of, as JSON. Tensors have shapes and devices but no values, so whatever mixes CPU and
accelerator, or reads a value back in the middle of a step, fails here as it would be slow or fail
on a GPU.
"""

from __future__ import annotations

import json
import os
import sys
import traceback

import numpy as np
import torch
import torch._dynamo  # which the first step of an optimiser loads: here once, not in every child
from scipy import sparse
from tiny_text import token_problem, word_problem  # beside this script
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import backend_registration

from train import methods
from train.batches import LabelLists
from train.data import MultiLabelData, Split
from train.data.dataset import ImageShape
from train.data.images import pixel_names
from train.problem import make_problem


def fake_device() -> torch.device:
    backend_registration._setup_privateuseone_for_python_backend("gpu")
    torch.nn.Module.to = move
    torch.Tensor.__deepcopy__ = copied
    return torch.device("gpu")


def copied(tensor: torch.Tensor, memo: dict[int, object]) -> torch.Tensor:
    """Stand in for torch's own, which looks for the address of values that there are none of."""
    values = tensor.detach().clone()
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    return torch.nn.Parameter(values, tensor.requires_grad) if is_parameter else values


def move(module: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """Stand in for Module.to, which cannot exchange the tensors of parameters without values."""
    for part in module.modules():
        parameters = {name: value for name, value in part._parameters.items() if value is not None}
        for name, value in parameters.items():  # None: a layer without bias
            part._parameters[name] = torch.nn.Parameter(value.data.to(device), value.requires_grad)
        for name, value in part._buffers.items():
            part._buffers[name] = value.to(device)
    return module


def small_problem(device: torch.device):
    rng = np.random.default_rng(0)
    data = MultiLabelData(
        name="small",
        inputs=rng.normal(size=(32, 7)).astype(np.float32),
        targets=sparse.csr_array((rng.random((32, 5)) < 0.4).astype(np.uint8)),
        labels=tuple("abcde"),
    )
    rows = np.arange(32)
    split = Split(train=rows[:16], validation=rows[16:24], test=rows[24:], rule="by hand")
    return make_problem(data, split, device)


def make_mistake(kind: str, loss: torch.Tensor) -> None:
    """What the test of this test does on purpose."""
    if kind == "--cpu-operand":
        loss * torch.ones(3)
    else:
        loss[0].item()


def text_step(name: str, tuning: str) -> None:
    device, rows = fake_device(), torch.arange(8)  # with values, as in the loop
    with FakeTensorMode(allow_non_fake_inputs=True):
        problem = token_problem(device, tuning=tuning)
        module = methods.load(name)
        method = module.build(module.Config(), problem)
        x, y = problem.train.x.batch(rows), torch.zeros(8, 3, device=device)
        assert x.input_ids.device.type == "gpu"
        losses = method.step(x, y)
        assert all(loss.device.type == "gpu" for loss in losses.values())
        assert method.predictor(x).device.type == "gpu"


def word_step(name: str, *words: str) -> None:
    """A step on words, and their scores."""
    device, rows = fake_device(), torch.arange(8)  # with values, as in the loop
    with FakeTensorMode(allow_non_fake_inputs=True):
        problem = word_problem(device)
        module = methods.load(name)
        method = module.build(module.Config(**dict(word.split("=") for word in words)), problem)
        y = torch.zeros(8, problem.train.y.width, device=device)
        x, y = problem.views(problem.train.x.batch(rows), y)
        losses = method.step(x, y)
        assert all(loss.device.type == "gpu" for loss in losses.values())
        assert method.predictor(x).device.type == "gpu"


def image_step(name: str, *words: str) -> None:
    """A step on crops, and whole images scored by 36 of them."""
    device = fake_device()
    shape = ImageShape(height=8, width=8)
    with FakeTensorMode(allow_non_fake_inputs=True):
        data = MultiLabelData(
            name="small",
            inputs=np.zeros((24, 192), np.float32),
            targets=sparse.csr_array(np.ones((24, 64), np.uint8)),
            labels=pixel_names(shape),
            image=shape,
        )
        rows = np.arange(24)
        split = Split(train=rows[:8], validation=rows[8:16], test=rows[16:], rule="by hand")
        problem = make_problem(data, split, device)
        module = methods.load(name)
        options = dict(word.split("=") for word in words)
        method = module.build(module.Config(**options), problem)
        x, y = torch.rand(8, 192, device=device), torch.zeros(8, 64, device=device)
        losses = method.step(*problem.views(x, y))
        assert all(loss.device.type == "gpu" for loss in losses.values())
        assert method.predictor(x).device.type == "gpu"


def plain_step(name: str, *mistakes: str) -> None:
    device = fake_device()
    with FakeTensorMode(allow_non_fake_inputs=True):
        problem = small_problem(device)
        module = methods.load(name)
        x = torch.randn(8, 7, device=device)
        if not hasattr(module, "build"):  # fitting in one go may look at values; predicting may not
            predictor = module.predictor(module.Config(), problem.shape).to(device)
            assert predictor(x).device.type == "gpu"
            return
        method = module.build(module.Config(), problem)
        y: torch.Tensor | LabelLists = torch.zeros(8, 5, device=device)
        if method.takes_label_lists:
            pairs = torch.zeros(12, dtype=torch.int64, device=device)
            y = LabelLists((8, 5), pairs, pairs)
        losses = method.step(x, y)
        for kind in mistakes:
            make_mistake(kind, losses["cross_entropy"].expand(3))
        assert all(loss.device.type == "gpu" for loss in losses.values())
        assert method.predictor(x).device.type == "gpu"


STEPS = {"--text": text_step, "--words": word_step, "--image": image_step}


def run(words: list[str]) -> None:
    if words[0] in STEPS:
        STEPS[words[0]](*words[1:])
    else:
        plain_step(*words)


def complaints(words: list[str]) -> str:
    """Run a step in a child; its traceback, or nothing."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        with open(writing, "w", encoding="utf-8") as answer:
            try:
                run(words)
            except BaseException:  # noqa: BLE001 - whatever it is, it is the answer
                answer.write(traceback.format_exc())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as answer:
        said = answer.read()
    _, status = os.wait()
    return said or ("" if status == 0 else f"the child ended with status {status}")


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(complaints(json.loads(line))) + "\n")
        sys.stdout.flush()
