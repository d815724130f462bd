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
import onnx_ir as ir
import onnxruntime as ort
import torch
from onnx_ir.passes.common import RemoveUnusedNodesPass
from torch import Tensor, nn
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from export.bundle import DATA_SUFFIX
from export.feeds import GRAPH_INPUTS
from export.head import (
    FILED_BYTES,
    SEARCHED,
    TABLE,
    add_exact_head,
    add_int8_head,
    add_word_head,
)
from export.inputs import GraphInputs, Trunk
from export.manifest import LabelTable
from train.checkpoint import FromTokens, FromWords
from train.nets.inference import GradientInference

OPSET = 20
LEAST_FILED_BYTES = 2**16
"""Smaller arrays stay in the graph even where others have a file."""


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


class Embedder(nn.Module):
    """A network up to what its logits are the inner products of, with the label table."""

    def __init__(self, predictor: nn.Module) -> None:
        super().__init__()
        *before, self.network = parts_of(predictor)
        self.before = nn.Sequential(*before)

    def forward(self, x: Any) -> Tensor:  # noqa: ANN401 - whatever the first part takes
        """Map rows to embeddings (rows, size)."""
        embedding: Tensor = self.network.embed(self.before(x))
        return embedding


def embedder_of(predictor: nn.Module) -> nn.Module:
    """A predictor that `embeds`, up to its embeddings."""
    if isinstance(predictor, FromTokens):
        return FromTokens(predictor.encoder, Embedder(predictor.network))
    return Embedder(predictor)


@torch.no_grad()
def table_of(predictor: nn.Module) -> Tensor:
    """The label table of a predictor that `embeds`, (labels, size)."""
    table: Tensor = network_of(predictor).label_embeddings()
    return table.detach()


def network_of(predictor: nn.Module) -> Any:  # noqa: ANN401 - its methods are asked for by name
    """What comes after a text encoder and input scaling, if there are any."""
    inside = predictor.network if isinstance(predictor, FromTokens | FromWords) else predictor
    return parts_of(inside)[-1]


def parts_of(predictor: nn.Module) -> list[Any]:
    """Input scaling, if there is any, and what comes after it."""
    return list(predictor) if isinstance(predictor, nn.Sequential) else [predictor]


def descends(predictor: nn.Module) -> bool:
    """Whether a predictor finds its answer by gradient-based inference."""
    return isinstance(network_of(predictor), GradientInference)


def embeds(predictor: nn.Module) -> bool:
    """Whether the logits of a predictor are inner products of embeddings and a label table."""
    network = network_of(predictor)
    return hasattr(network, "embed") and hasattr(network, "label_embeddings")


def is_filed(predictor: nn.Module) -> bool:
    """Whether a predictor has a label table so large that it gets a file."""
    return embeds(predictor) and table_of(predictor).nbytes >= FILED_BYTES


def export_predictor(
    predictor: nn.Module,
    width: int,
    n_labels: int,
    *,
    kind: str = "features",
    int8: bool = False,
) -> ir.Model:
    """The graph of a predictor: any number of rows, any k up to the number of labels.

    That of a predictor that descends has an output more, `path`, for comparing every point of the
    way; `without_path` takes it out. With `int8` there is a search in 8 bits beside, `SEARCHED`.
    """
    inputs = GraphInputs(kind, width)
    if kind == "words":
        model = _traced(Trunk(predictor, inputs), inputs, ["logits"])
        add_word_head(model, n_labels)
    elif descends(predictor):
        traced = _without_autograd(WithPath(predictor), width)
        model = _folded(_traced(traced, inputs, ["logits", "path"], optimize=False))
        add_exact_head(model, n_labels, None)
    elif embeds(predictor):
        model = _traced(Trunk(embedder_of(predictor), inputs), inputs, ["embedding"])
        if int8:
            add_int8_head(model, table_of(predictor))
        else:
            add_exact_head(model, n_labels, table_of(predictor))
    else:
        model = _traced(Trunk(predictor, inputs), inputs, ["logits"])
        add_exact_head(model, n_labels, None)
    return model


def without_path(model: ir.Model) -> ir.Model:
    """Take the output `path`, and what only it needs, out of a graph."""
    kept = [output for output in model.graph.outputs if output.name != "path"]
    del model.graph.outputs[:]
    model.graph.outputs.extend(kept)
    RemoveUnusedNodesPass()(model)
    return model


def save_graph(model: ir.Model, path: Path) -> None:
    """Write a graph, its large arrays into a file beside it if they are many, and check it."""
    arrays = (value.const_value for value in model.graph.initializers.values())
    if sum(array.nbytes for array in arrays if array is not None) < FILED_BYTES:
        ir.save(model, path)
    else:
        ir.save(
            model,
            path,
            external_data=path.name + DATA_SUFFIX,
            size_threshold_bytes=LEAST_FILED_BYTES,
            # Each thread would hold an array of its own in memory.
            max_workers=1,
        )
    onnx.checker.check_model(str(path))


def save_proto(proto: onnx.ModelProto, path: Path) -> None:
    """Write a graph that another tool made, in the same way."""
    save_graph(ir.from_proto(proto), path)


def save_encoder(model: Path, kind: str, path: Path) -> int | None:
    """Write the part of a saved graph that ends in `embedding`; return the size of one, if any."""
    values = (output for node in ir.load(model).graph for output in node.outputs)
    embedding = next((value for value in values if value.name == "embedding"), None)
    if embedding is None or embedding.shape is None:
        return None
    save_part(model, list(GRAPH_INPUTS[kind]), {"embedding": "embedding"}, path)
    size = embedding.shape[1]
    return size if isinstance(size, int) else None


def save_search(model: Path, kind: str, path: Path) -> None:
    """Write the part of a saved graph with a large table that ends in the best labels.

    ONNX Runtime computes all outputs of a graph, asked for or not: this one scores no more than it
    must. What only the search needs leaves the graph itself.
    """
    inputs = [*GRAPH_INPUTS[kind], "k", TABLE]
    top = ("top_scores", "top_labels")
    has_search = any(output.name in SEARCHED for output in ir.load(model).graph.outputs)
    save_part(model, inputs, dict(zip(SEARCHED if has_search else top, top, strict=True)), path)
    if has_search:
        save_part(model, inputs, {name: name for name in ("scores", *top)}, model)


def save_part(model: Path, inputs: list[str], outputs: dict[str, str], path: Path) -> None:
    """Write the part of a saved graph that ends in some of its values, under other names.

    Large arrays stay in the file of the whole graph, which both then read.
    """
    part = ir.load(model)
    graph = part.graph
    values = {value.name: value for node in graph for value in node.outputs}
    del graph.outputs[:]
    for value in values.values():
        if value.name in outputs.values() and value.name not in outputs:
            value.name = f"{value.name}_inside"
    for name, new_name in outputs.items():
        values[name].name = new_name
        graph.outputs.append(values[name])
    kept = [value for value in graph.inputs if value.name in inputs]
    del graph.inputs[:]
    graph.inputs.extend(kept)
    RemoveUnusedNodesPass()(part)
    for name in [name for name, value in graph.initializers.items() if not value.uses()]:
        if name not in inputs:
            del graph.initializers[name]
    onnx.save(ir.to_proto(part), path)


def filed_table(model: Path, n_labels: int) -> LabelTable | None:
    """Where a saved graph has its label table, if that is in the file beside it."""
    table = ir.load(model).graph.initializers.get(TABLE)
    if table is None or not isinstance(table.const_value, ir.ExternalTensor):
        return None
    array = table.const_value
    rows, columns = array.shape.numpy()
    by_label = rows == n_labels
    size = columns if by_label else rows
    return LabelTable(size=size, offset=array.offset or 0, by_label=by_label)


def _folded(model: ir.Model) -> ir.Model:
    """Simplify a graph by ONNX Runtime, in standard operators only.

    The exporter's own optimiser takes longer than all the rest on the many nodes of a descent, and
    leaves more of them.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "folded.onnx"
        options.optimized_model_filepath = str(path)
        content = ir.to_proto(model).SerializeToString()
        ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        proto = onnx.load(path)
    domains = {node.domain for node in proto.graph.node}
    used = [entry for entry in proto.opset_import if entry.domain in domains]
    del proto.opset_import[:]
    proto.opset_import.extend(used)
    return ir.from_proto(proto)


def _traced(
    network: nn.Module, inputs: GraphInputs, outputs: list[str], *, optimize: bool = True
) -> ir.Model:
    """A graph in which the number of rows, and whatever else `inputs` leaves open, may be any."""
    with _quiet():
        program = torch.onnx.export(
            network.eval(),
            inputs.examples(),
            dynamo=True,
            opset_version=OPSET,
            input_names=list(GRAPH_INPUTS[inputs.kind]),
            output_names=outputs,
            dynamic_shapes=inputs.dynamic_shapes(),
            external_data=False,
            optimize=optimize,
            verbose=False,
        )
    assert program is not None  # noqa: S101 - by dynamo=True
    model: ir.Model = program.model
    for value in (value for node in model.graph for value in node.outputs):
        # The exporter names values after operators, `embedding` for one, and outputs as told.
        if value.name in outputs and not value.is_graph_output():
            value.name = f"{value.name}_inside"
    return model


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
