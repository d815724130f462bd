"""The last part of every served graph: from logits, or embeddings, to scores and the best labels.

Written node by node, so that a table of a million labels is neither traced nor copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

TABLE = "label_table"
SEARCHED = ("searched_scores", "searched_labels")
CANDIDATES = 100
"""Labels that a search in 8 bits scores again in 32, at least."""
FILED_BYTES = 2**26
"""A table at least so large fits no cache: one row costs as much as reading it once."""


class Head:
    """Adds nodes to the end of a graph, and at last its outputs."""

    def __init__(self, model: ir.Model, n_labels: int) -> None:
        self.graph = model.graph
        self.n_labels = n_labels
        self.k = ir.val("k", ir.DataType.INT64, [])
        self.graph.inputs.append(self.k)
        self.one = self.constant("one", np.array([1], dtype=np.int64))

    def add(self, operator: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:  # noqa: ANN401
        """Append a node of one output."""
        node = ir.node(operator, list(inputs), attributes)
        self.graph.append(node)
        return node.outputs[0]

    def top(self, values: ir.Value, count: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The largest values of each row, falling, and where they are."""
        node = ir.node("TopK", [values, count], num_outputs=2)
        self.graph.append(node)
        return node.outputs[0], node.outputs[1]

    def constant(self, name: str, value: np.ndarray | ir.LazyTensor) -> ir.Value:
        """Add an array to the graph."""
        tensor = ir.tensor(value) if isinstance(value, np.ndarray) else value
        constant = ir.val(name, const_value=tensor)
        self.graph.register_initializer(constant)
        return constant

    def k_of_row(self) -> ir.Value:
        """`k` as TopK takes it, (1,)."""
        return self.add("Reshape", self.k, self.one)

    def finish(self, logits: ir.Value, top_logits: ir.Value, top_labels: ir.Value) -> None:
        """Declare the outputs: scores (rows, labels), top_scores and top_labels (rows, k)."""
        self.declare("scores", self.add("Sigmoid", logits), ir.DataType.FLOAT, self.n_labels)
        self.declare("top_scores", self.add("Sigmoid", top_logits), ir.DataType.FLOAT, "best")
        self.declare("top_labels", top_labels, ir.DataType.INT64, "best")

    def declare(self, name: str, value: ir.Value, kind: ir.DataType, columns: int | str) -> None:
        """Make a value an output (rows, columns)."""
        value.name, value.dtype, value.shape = name, kind, ir.Shape(["rows", columns])
        self.graph.outputs.append(value)


def add_exact_head(model: ir.Model, n_labels: int, table: Tensor | None) -> None:
    """Rank the first output of a graph: logits, or embeddings if there is a label table.

    The k best are chosen among logits: sigmoids near one would tie in float32.
    """
    trunk = model.graph.outputs.pop(0)
    rest = list(model.graph.outputs)
    del model.graph.outputs[:]
    head = Head(model, n_labels)
    logits = trunk if table is None else head.add("MatMul", trunk, _columns(head, table))
    head.finish(logits, *head.top(logits, head.k_of_row()))
    model.graph.outputs.extend(rest)


def add_word_head(model: ir.Model, n_labels: int) -> None:
    """Take the best label of each word of a graph whose output is logits (rows, words * labels).

    The outputs are those of every graph, with as many best labels as words, in their order; a label
    is told by its column among the scores.
    """
    logits = model.graph.outputs.pop(0)
    head = Head(model, n_labels)
    shape = head.constant("by_word", np.array([0, -1, n_labels], dtype=np.int64))
    axis = head.constant("axis_of_labels", np.array([2], dtype=np.int64))
    words = head.add("Reshape", logits, shape)  # (rows, words, labels)
    best = head.add("ArgMax", words, axis=2, keepdims=0)
    numbers = [head.constant(f"number_{n}", np.array(n, dtype=np.int64)) for n in (0, 1, n_labels)]
    count = head.add("Gather", head.add("Shape", best), numbers[1])
    first = head.add("Mul", head.add("Range", numbers[0], count, numbers[1]), numbers[2])
    top = head.add("ReduceMax", words, axis, keepdims=0)
    head.declare("scores", head.add("Sigmoid", logits), ir.DataType.FLOAT, "cells")
    head.declare("top_scores", head.add("Sigmoid", top), ir.DataType.FLOAT, "words")
    head.declare("top_labels", head.add("Add", best, first), ir.DataType.INT64, "words")


def add_int8_head(model: ir.Model, table: Tensor) -> None:
    """Beside the exact head, look for candidates in 8 bits and rank them by their exact logits.

    Each label has a scale of its own, each batch of rows one that does not change the order. The
    outputs of this search are `SEARCHED`.
    """
    n_labels = len(table)
    embedding = model.graph.outputs.pop(0)
    head = Head(model, n_labels)
    exact = _overridable(head, _table(table))
    logits = head.add("Gemm", embedding, exact, transB=1)
    head.finish(logits, *head.top(logits, head.k_of_row()))
    small, scale = quantized(table)
    node = ir.node("DynamicQuantizeLinear", [embedding], num_outputs=3)
    head.graph.append(node)
    rows, row_scale, zero = node.outputs
    product = head.add("MatMulInteger", rows, head.constant("label_table_int8", small), zero)
    scales = head.add("Mul", row_scale, head.constant("label_scales", scale))
    rough = head.add("Mul", head.add("Cast", product, to=ir.DataType.FLOAT), scales)
    _, found = head.top(rough, _candidates(head, n_labels))  # (rows, candidates)
    axis = head.constant("last", np.array([2], dtype=np.int64))
    vectors = head.add("Gather", exact, found)  # (rows, candidates, size)
    again = head.add("MatMul", vectors, head.add("Unsqueeze", embedding, axis))
    top_logits, places = head.top(head.add("Squeeze", again, axis), head.k_of_row())
    head.declare(SEARCHED[0], head.add("Sigmoid", top_logits), ir.DataType.FLOAT, "best")
    top_labels = head.add("GatherElements", found, places, axis=1)
    head.declare(SEARCHED[1], top_labels, ir.DataType.INT64, "best")


def quantized(table: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """A label table (labels, size) in 8 bits, transposed, and the scale of each label."""
    scale = table.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
    small = torch.empty(table.shape[1], len(table), dtype=torch.int8)
    for rows in torch.arange(len(table)).split(2**16):
        part = table[rows[0] : rows[-1] + 1] / scale[rows, None]
        small[:, rows[0] : rows[-1] + 1] = part.round().to(torch.int8).T
    return small.numpy(), scale.numpy()


def _candidates(head: Head, n_labels: int) -> ir.Value:
    """How many labels are scored again: twice what is asked for, at least `CANDIDATES`."""
    least = head.constant("candidates", np.array([CANDIDATES], dtype=np.int64))
    most = head.constant("labels", np.array([n_labels], dtype=np.int64))
    twice = head.add("Add", head.k_of_row(), head.k_of_row())
    return head.add("Min", head.add("Max", twice, least), most)


def _columns(head: Head, table: Tensor) -> ir.Value:
    """A label table as the right side of a product, (size, labels)."""
    columns = _table(table, transposed=True)
    if table.nbytes < FILED_BYTES:
        return head.constant(TABLE, columns)
    return _overridable(head, columns)


def _table(table: Tensor, *, transposed: bool = False) -> ir.LazyTensor:
    """A table as the graph's own, of which a transposed copy lives only while it is written."""
    shape = ir.Shape(table.shape[::-1] if transposed else table.shape)

    def value() -> ir.TensorProtocol:
        return ir.tensor((table.T if transposed else table).contiguous().numpy())

    return ir.LazyTensor(value, ir.DataType.FLOAT, shape, name=TABLE)


def _overridable(head: Head, tensor: ir.LazyTensor) -> ir.Value:
    """A table that callers could replace: so ONNX Runtime maps the file and copies nothing.

    A constant would be rearranged into a copy at every start, and one row would take longer: that
    order pays for many rows at once.
    """
    value = head.constant(TABLE, tensor)
    head.graph.inputs.append(value)
    return value
