"""A trained predictor as an ONNX graph with scaling, sigmoid and top-k inside."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import torch
from torch import Tensor, nn
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from train.nets.inference import GradientInference

OPSET = 20


class ServedModel(nn.Module):
    """Rows and k in; all scores, and the k best with their label numbers, out.

    The k best are chosen among logits: sigmoids near one would tie in float32.
    """

    def __init__(self, predictor: nn.Module) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, features: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map (rows, width) and () to scores (rows, labels), top scores and labels (rows, k)."""
        return top(self.predictor(features), k)


def top(logits: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All scores, and the k best among logits with their labels."""
    count: Any = k.item()  # an int when run, a symbol while traced
    torch._check(count >= 1)
    torch._check(count <= logits.shape[1])
    top_logits, top_labels = torch.topk(logits, count, dim=1)
    return logits.sigmoid(), top_logits.sigmoid(), top_labels


class ServedDescent(nn.Module):
    """`ServedModel` of a predictor that descends, with every point of the way as an output more."""

    def __init__(self, predictor: nn.Module) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, features: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Outputs of `ServedModel`, and the path (rows, 1 + steps, starts, labels)."""
        logits, path = self.predictor(features)
        return *top(logits, k), path


class WithPath(nn.Module):
    """A predictor that descends, answering with its logits and its path."""

    def __init__(self, predictor: nn.Module) -> None:
        super().__init__()
        *before, self.inference = parts_of(predictor)
        self.before = nn.Sequential(*before)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map (rows, width) to logits (rows, labels) and (rows, 1 + steps, starts, labels)."""
        answer: tuple[Tensor, Tensor] = self.inference.with_path(self.before(features))
        return answer


def parts_of(predictor: nn.Module) -> list[Any]:
    """Input scaling, if there is any, and what comes after it."""
    return list(predictor) if isinstance(predictor, nn.Sequential) else [predictor]


def descends(predictor: nn.Module) -> bool:
    """Whether a predictor finds its answer by gradient-based inference."""
    return isinstance(parts_of(predictor)[-1], GradientInference)


def export_predictor(predictor: nn.Module, width: int, n_labels: int) -> bytes:
    """Write the graph of a predictor: any number of rows, any k up to the number of labels.

    That of a predictor that descends has an output more, `path`, for comparing every point of the
    way; `without_path` takes it out.
    """
    outputs = ["scores", "top_scores", "top_labels"]
    inputs = {"features": torch.zeros(2, width), "k": torch.tensor(min(2, n_labels))}
    if not descends(predictor):
        return _export(ServedModel(predictor), inputs, outputs)
    served = ServedDescent(_without_autograd(WithPath(predictor), width))
    return _folded(_export(served, inputs, [*outputs, "path"], optimize=False))


def without_path(model: bytes) -> bytes:
    """Take the output `path`, and what only it needs, out of a graph."""
    proto = onnx.load_from_string(model)
    graph = proto.graph
    kept = [output for output in graph.output if output.name != "path"]
    wanted = {output.name for output in kept}
    nodes = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            nodes.append(node)
    weights = [weight for weight in graph.initializer if weight.name in wanted]
    del graph.output[:], graph.node[:], graph.initializer[:]
    graph.output.extend(kept)
    graph.node.extend(reversed(nodes))
    graph.initializer.extend(weights)
    onnx.checker.check_model(proto)
    return bytes(proto.SerializeToString())


def _folded(model: bytes) -> bytes:
    """Simplify a graph by ONNX Runtime, in standard operators only.

    The exporter's own optimiser takes longer than all the rest on the many nodes of a descent, and
    leaves more of them.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "folded.onnx"
        options.optimized_model_filepath = str(path)
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        proto = onnx.load(path)
    domains = {node.domain for node in proto.graph.node}
    used = [entry for entry in proto.opset_import if entry.domain in domains]
    del proto.opset_import[:]
    proto.opset_import.extend(used)
    return bytes(proto.SerializeToString())


def _export(
    network: nn.Module, inputs: dict[str, Tensor], outputs: list[str], *, optimize: bool = True
) -> bytes:
    """Write a graph in which the rows of `features`, the first input, may be any number."""
    shapes = ({0: torch.export.Dim("rows")}, *({} for _ in list(inputs)[1:]))
    with _quiet():
        program = torch.onnx.export(
            network.eval(),
            tuple(inputs.values()),
            dynamo=True,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes=shapes,
            external_data=False,
            optimize=optimize,
            verbose=False,
        )
    assert program is not None  # noqa: S101 - by dynamo=True
    model = program.model_proto
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _without_autograd(network: nn.Module, width: int) -> nn.Module:
    """Replace inference by gradients, which the exporter cannot follow, by what it computes.

    Tracing turns every gradient into ordinary operations. "symbolic" keeps the number of rows
    open; with real numbers it would be frozen to that of the example, without a word.
    """
    trace = make_fx(
        network.requires_grad_(False),
        decomposition_table=dict(core_aten_decompositions().items()),
        tracing_mode="symbolic",
        _allow_non_fake_inputs=True,
    )
    return trace(torch.zeros(2, width))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's notes about optional packages; its errors still come through."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
