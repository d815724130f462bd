"""The graph that every server gets: a network of the size of the delicious data set's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export.bundle import MODEL, Contents, drafted, write_bundle
from export.manifest import InputSpec, Manifest, Thresholds

WIDTH, HIDDEN, LABELS, TOP_K = 500, 400, 983, 5
BODIES = 16
"""Different requests that a load generator goes round."""


def graph(seed: int = 0) -> onnx.ModelProto:
    """A 500-400-400-983 network with the ranking inside, as `python -m export` writes it."""
    rng = np.random.default_rng(seed)
    sizes = [(WIDTH, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, LABELS)]
    weights = {
        f"W{i}": rng.normal(0, size[0] ** -0.5, size).astype(np.float32)
        for i, size in enumerate(sizes)
    }
    biases = {f"b{i}": np.zeros(size[1], np.float32) for i, size in enumerate(sizes)}
    nodes, last = [], "features"
    for i in range(len(sizes)):
        nodes.append(helper.make_node("Gemm", [last, f"W{i}", f"b{i}"], [f"z{i}"]))
        last = f"z{i}"
        if i < len(sizes) - 1:
            nodes.append(helper.make_node("Relu", [last], [f"h{i}"]))
            last = f"h{i}"
    nodes += [
        helper.make_node("Sigmoid", [last], ["scores"]),
        helper.make_node("Reshape", ["k", "one"], ["k1"]),
        helper.make_node("TopK", [last, "k1"], ["top_logits", "top_labels"]),
        helper.make_node("Sigmoid", ["top_logits"], ["top_scores"]),
    ]
    value = helper.make_tensor_value_info
    constants = {**weights, **biases, "one": np.array([1], np.int64)}
    return helper.make_model(
        helper.make_graph(
            nodes,
            "network",
            [
                value("features", TensorProto.FLOAT, ["rows", WIDTH]),
                value("k", TensorProto.INT64, []),
            ],
            [
                value("scores", TensorProto.FLOAT, ["rows", LABELS]),
                value("top_scores", TensorProto.FLOAT, ["rows", "best"]),
                value("top_labels", TensorProto.INT64, ["rows", "best"]),
            ],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=10,
    )


def label_names() -> list[str]:
    """A name for each label."""
    return [f"label-{column}" for column in range(LABELS)]


def rows(count: int, seed: int = 1) -> NDArray[np.float32]:
    """Dense rows of six digits each (count, WIDTH)."""
    values = np.random.default_rng(seed).random((count, WIDTH)).round(6)
    return values.astype(np.float32)


def session(path: Path) -> ort.InferenceSession:
    """The graph in ONNX Runtime alone, one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def write(folder: Path, seed: int = 0) -> Path:
    """Write the graph as a bundle into `folder` and return the bundle's path."""
    model, probe = graph(seed), rows(8, seed=2)
    plain = folder / "model.onnx"
    folder.mkdir(parents=True, exist_ok=True)
    plain.write_bytes(model.SerializeToString())
    scores = session(plain).run(["scores"], {"features": probe, "k": np.array(1, np.int64)})[0]
    manifest = Manifest(
        name="network",
        version="0" * 12,
        method="bench",
        task="multilabel",
        dataset="random",
        input=InputSpec(kind="features", width=WIDTH),
        label_count=LABELS,
        thresholds=Thresholds(tuned=0.5, per_label=[0.5] * LABELS),
        test_scores={},
        largest_difference=0.0,
        versions={},
    )
    path = folder / "network.bundle"
    with drafted(path) as draft:
        (draft / MODEL).write_bytes(model.SerializeToString())
        contents = Contents(labels=label_names(), probe={"features": probe}, probe_scores=scores)
        write_bundle(draft, manifest, contents)
    return path
