"""Sparse rows, label tables, search in 8 bits and indexes: exported graphs against torch."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace

import faiss
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import sklearn.metrics
import torch
from torch import nn

import export.to_onnx
from export import head
from export.bundle import BundleError, load_bundle
from export.exporting import ExportOptions, export_checkpoint
from export.external_data import uses_of
from export.inputs import PaddedRows, feed_of, takes_sparse
from export.quantize import check_quality, macro_f1
from export.to_onnx import export_predictor, save_graph
from export.verify import check_parity
from serve.bench_labels import race
from serve.predictor import OnnxPredictor
from train.checkpoint import Checkpoint, InputScaling, save_checkpoint
from train.errors import UserError
from train.nets.mlp import FeatureNet, TaskNet

WIDTH, LABELS = 5000, 30


def task_net(width=WIDTH, labels=LABELS, size=16, seed=0):
    torch.manual_seed(seed)
    return TaskNet(FeatureNet(width, (size,), 0.0), labels).eval()


def wide_rows(count=9, width=WIDTH, seed=0):
    """Rows with 0 to 8 values, the first with none."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((count, width), np.float32)
    for number, row in enumerate(rows):
        row[rng.choice(width, number, replace=False)] = rng.normal(size=number)
    return torch.from_numpy(rows)


def checkpoint_of(net, probe, labels=LABELS, **changes):
    fields = {
        "name": "some-ce",
        "method": "ce",
        "task": "multilabel",
        "config": {"hidden": (net.labels.shape[1],)},
        "dataset": "some",
        "shape": {"n_features": probe.shape[1], "n_labels": labels, "n_rows": 10},
        "labels": [f"label {number}" for number in range(labels)],
        "features": [],
        "scaling": None,
        "weights": net.state_dict(),
        "thresholds": {"tuned": 0.5, "per_label": [0.5] * labels},
        "scores": {"test": {"micro_f1": 0.5}, "validation": {}},
        "split": {},
        "seed": 0,
        "epoch": 1,
        "probe": probe,
        "versions": {},
    }
    return Checkpoint(**{**fields, **changes})


def exported(tmp_path, checkpoint, **options):
    save_checkpoint(checkpoint, tmp_path / "model.pt")
    export_checkpoint(tmp_path / "model.pt", tmp_path / "b", ExportOptions(**options))
    return load_bundle(tmp_path / "b")


class Densifying(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, LABELS)

    def forward(self, x):
        return self.linear(x.to_dense())


@pytest.mark.parametrize("network", [task_net, Densifying])
def test_sparse_rows_give_the_scores_of_dense_ones(network):
    torch.manual_seed(0)
    net, rows = network().eval(), wide_rows()
    feed = feed_of("sparse", rows)
    assert feed["indices"].shape == feed["values"].shape == (9, 8)
    model = export_predictor(net, WIDTH, LABELS, kind="sparse")
    parity = check_parity(net, model, rows.numpy(), feed=feed)
    assert parity.largest_difference <= 1e-6


def test_padded_rows_are_what_they_stand_for():
    rows = wide_rows()
    feed = feed_of("sparse", rows)
    padded = PaddedRows(*(torch.from_numpy(feed[name]) for name in ("indices", "values")), WIDTH)
    weight = torch.randn(WIDTH, 3)
    torch.testing.assert_close(padded @ weight, rows @ weight)
    torch.testing.assert_close(padded.to_dense(), rows)
    assert padded.shape == rows.shape
    assert len(padded) == len(rows)


def test_feeds_of_sparse_tensors_are_those_of_dense_ones():
    dense, sparse = (feed_of("sparse", rows) for rows in (wide_rows(), wide_rows().to_sparse()))
    for name, array in dense.items():
        np.testing.assert_array_equal(array, sparse[name])


class Elementwise(nn.Module):
    def forward(self, x):
        return (x * 2)[:, :LABELS]


def test_a_network_that_does_more_with_rows_takes_none_that_are_sparse():
    assert takes_sparse(task_net(), WIDTH)
    assert takes_sparse(Densifying(), WIDTH)
    assert not takes_sparse(Elementwise(), WIDTH)
    scaled = nn.Sequential(InputScaling(torch.zeros(WIDTH), torch.ones(WIDTH)), task_net())
    assert not takes_sparse(scaled, WIDTH)


@pytest.mark.parametrize(
    ("kind", "width", "probe"),
    [("sparse", 5000, None), ("features", 4095, None), ("features", 5000, torch.ones(3, 5000))],
)
def test_wide_rows_that_are_mostly_zero_are_sent_sparse(tmp_path, kind, width, probe):
    probe = wide_rows(width=width) if probe is None else probe
    bundle = exported(tmp_path, checkpoint_of(task_net(width), probe))
    assert bundle.manifest.input.kind == kind
    assert bundle.manifest.embedding_size == 16
    assert set(bundle.probe) == ({"features"} if kind == "features" else {"indices", "values"})


def encoder_answers(bundle):
    session = ort.InferenceSession(str(bundle.path / "encoder.onnx"))
    return session.run(["embedding"], dict(bundle.probe))[0]


@pytest.fixture
def small_files(monkeypatch):
    """Treat every table as a large one."""
    monkeypatch.setattr(head, "FILED_BYTES", 1)
    monkeypatch.setattr(export.to_onnx, "FILED_BYTES", 1)
    monkeypatch.setattr(export.to_onnx, "LEAST_FILED_BYTES", 256)


@pytest.mark.parametrize("int8", [False, True])
def test_a_large_table_is_a_file_that_both_graphs_read(tmp_path, small_files, int8):
    net, rows = task_net(), wide_rows()
    bundle = exported(tmp_path, checkpoint_of(net, rows), int8=int8)
    assert bundle.has("model.onnx.data")
    assert uses_of(bundle.model_path).locations == {"model.onnx.data"}
    assert uses_of(bundle.path / "encoder.onnx").locations == {"model.onnx.data"}
    assert uses_of(bundle.path / "search.onnx").locations == {"model.onnx.data"}
    operators = {
        name: {node.op_type for node in onnx.load(bundle.path / name).graph.node}
        for name in ("model.onnx", "search.onnx")
    }
    assert "MatMulInteger" not in operators["model.onnx"]
    assert ("MatMulInteger" in operators["search.onnx"]) == int8
    assert "Gemm" not in operators["search.onnx"]
    outputs = [output.name for output in onnx.load(bundle.path / "search.onnx").graph.output]
    assert outputs == ["top_scores", "top_labels"]
    assert bundle.manifest.label_table.by_label == int8
    np.testing.assert_array_equal(bundle.label_vectors(), net.labels.detach())
    np.testing.assert_allclose(encoder_answers(bundle), net.embed(rows).detach(), atol=1e-5)
    np.testing.assert_allclose(bundle.probe_scores, net(rows).sigmoid().detach(), atol=1e-6)


def test_the_encoder_of_a_small_model_stands_alone(tmp_path):
    net, rows = task_net(), wide_rows()
    bundle = exported(tmp_path, checkpoint_of(net, rows))
    assert bundle.manifest.label_table is None
    assert bundle.label_vectors() is None
    np.testing.assert_allclose(encoder_answers(bundle), net.embed(rows).detach(), atol=1e-5)


@pytest.mark.parametrize("location", ["../model.onnx.data", "/etc/passwd", "labels.json", "x.data"])
def test_a_graph_that_reads_another_file_is_refused(tmp_path, small_files, location):
    path = exported(tmp_path, checkpoint_of(task_net(), wide_rows())).path
    graph = onnx.load(path / "model.onnx", load_external_data=False)
    for initializer in graph.graph.initializer:
        for entry in initializer.external_data:
            if entry.key == "location":
                entry.value = location
    (path / "model.onnx").write_bytes(graph.SerializeToString())
    assert uses_of(path / "model.onnx").locations == {location}
    forge(path)
    with pytest.raises(BundleError, match="which is not in the bundle's manifest"):
        load_bundle(path)


def forge(path):
    """Make the manifest agree with a changed graph, as an attacker would."""
    manifest = json.loads((path / "manifest.json").read_text())
    content = (path / "model.onnx").read_bytes()
    entry = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    manifest["files"]["model.onnx"] = entry
    (path / "manifest.json").write_text(json.dumps(manifest))


def test_locations_inside_branches_and_attributes_are_found(tmp_path):
    helper = onnx.helper
    tensor = onnx.numpy_helper.from_array(np.zeros(4, np.float32), "t")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="hidden.bin")
    constant = helper.make_node("Constant", [], ["y"], value=tensor)
    value = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4])
    branch = helper.make_graph([constant], "branch", [], [value])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    model = helper.make_model(helper.make_graph([node], "g", [], [value]))
    (tmp_path / "g.onnx").write_bytes(model.SerializeToString())
    assert uses_of(tmp_path / "g.onnx").locations == {"hidden.bin"}


def best(net, rows, k):
    return torch.topk(net(rows), k).indices.numpy()


def test_a_search_in_8_bits_ranks_by_exact_scores(tmp_path):
    net, rows = task_net(labels=500), wide_rows()
    save_graph(export_predictor(net, WIDTH, 500, kind="sparse", int8=True), tmp_path / "m.onnx")
    session = ort.InferenceSession(str(tmp_path / "m.onnx"))
    for k in (1, 10, 200, 500):
        feed = {**feed_of("sparse", rows), "k": np.array(k)}
        scores, labels = session.run(["searched_scores", "searched_labels"], feed)
        expected = np.sort(net(rows).sigmoid().detach().numpy(), axis=1)[:, ::-1][:, :k]
        np.testing.assert_allclose(scores, expected, atol=1e-6)
        np.testing.assert_array_equal(labels[1:, 0], best(net, rows, 1)[1:, 0])


def test_a_search_that_misses_the_best_labels_is_refused(tmp_path, monkeypatch, small_files):
    """One label in 8 bits after another is spoiled, so that the candidates are arbitrary."""
    right = head.quantized
    monkeypatch.setattr(
        head, "quantized", lambda table: (np.zeros_like(right(table)[0]), right(table)[1])
    )
    checkpoint = checkpoint_of(task_net(labels=2000), wide_rows(), labels=2000)
    with pytest.raises(BundleError, match=r"finds .*% of the best labels, at least 98%"):
        exported(tmp_path, checkpoint, int8=True)
    assert not (tmp_path / "b").exists()


def test_networks_without_a_label_table_get_no_index(tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoint, "predictor", lambda _: nn.Linear(6, LABELS))
    checkpoint = checkpoint_of(task_net(6), wide_rows(width=6, count=5))
    with pytest.raises(BundleError, match="--index is for networks whose scores are inner"):
        exported(tmp_path, checkpoint, index="ivf")


def test_an_index_is_for_many_labels(tmp_path):
    with pytest.raises(BundleError, match="--index ivf is for at least 10000 labels"):
        exported(tmp_path, checkpoint_of(task_net(), wide_rows()), index="ivf")


def test_an_index_finds_what_the_manifest_promises(tmp_path):
    net, rows = task_net(labels=10_000), wide_rows()
    bundle = exported(tmp_path, checkpoint_of(net, rows, labels=10_000), index="ivf")
    search = bundle.manifest.search
    assert search.kind == "ivf"
    index = faiss.read_index(str(bundle.path / "labels.faiss"))
    index.nprobe = search.nprobe
    _, found = index.search(net.embed(rows).detach().numpy(), 10)
    shares = [len(set(a) & set(b)) / 10 for a, b in zip(found, best(net, rows, 10), strict=True)]
    assert np.mean(shares) == pytest.approx(search.recall, abs=0.02)
    assert search.recall >= 0.98


@pytest.mark.parametrize("options", [{}, {"int8": True}, {"index": "ivf"}])
def test_the_server_finds_the_best_labels_of_a_large_table(tmp_path, small_files, options):
    net, rows = task_net(labels=10_001), wide_rows()
    bundle = exported(tmp_path, checkpoint_of(net, rows, labels=10_001), **options)
    assert bundle.has("search.onnx")
    assert bundle.has("thresholds.npy")
    predictor = OnnxPredictor(bundle)
    scored = predictor.run(predictor.probe_rows(), 10)
    exact = predictor.run(predictor.probe_rows(), 10, with_scores=True)
    expected = net(rows).sigmoid().detach().numpy()
    np.testing.assert_allclose(exact.scores, expected, atol=1e-6)
    picked = np.take_along_axis(expected, scored.top_labels, axis=1)
    np.testing.assert_allclose(scored.top_scores, picked, atol=1e-6)
    shares = [
        len(set(a) & set(b)) / 10
        for a, b in zip(scored.top_labels, best(net, rows, 10), strict=True)
    ]
    assert np.mean(shares) >= 0.98
    # As many as are asked for, however few are in the cells that are searched.
    assert predictor.run(predictor.probe_rows(2), 5000).top_labels.shape == (2, 5000)
    results = race(predictor, rounds=1, threads=1)
    assert {found.batch for found in results} == {1, 32}
    assert all(found.recall >= 0.9 for found in results)
    assert "faiss Flat" in {found.way for found in results}


def test_a_server_without_faiss_says_so(tmp_path, monkeypatch):
    net, rows = task_net(labels=10_000), wide_rows()
    bundle = exported(tmp_path, checkpoint_of(net, rows, labels=10_000), index="ivf")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match=r'needs faiss: pip install "labelwright\[ann\]"'):
        OnnxPredictor(bundle)


def trained_on(rows, labels=LABELS):
    """A checkpoint whose probe labels are what its own network predicts."""
    net = task_net()
    sets = [np.flatnonzero(row).tolist() for row in net(rows).sigmoid().detach().numpy() >= 0.5]
    return checkpoint_of(net, rows, probe_labels=sets)


def test_a_small_network_in_8_bits_predicts_the_same_labels(tmp_path):
    bundle = exported(tmp_path, trained_on(wide_rows()), int8=True)
    quality = bundle.manifest.quantized
    assert quality["macro_f1_float32"] == 1.0
    assert quality["macro_f1"] >= 0.995
    operators = {node.op_type for node in onnx.load(bundle.model_path).graph.node}
    assert "MatMulInteger" in operators
    assert bundle.manifest.search is None


def test_8_bits_that_change_the_labels_are_refused(tmp_path):
    checkpoint = trained_on(wide_rows())
    opposite = [sorted(set(range(LABELS)) - set(labels)) for labels in checkpoint.probe_labels]
    scores, exact = np.zeros((9, LABELS), np.float32), np.zeros((9, LABELS), np.float32)
    for row, labels in zip(exact, opposite, strict=True):
        row[labels] = 1
    with pytest.raises(BundleError, match=r"falls from 1\.000 to 0\.000"):
        check_quality(scores, exact, opposite, 0.5)
    with pytest.raises(BundleError, match="needs the labels of the test rows"):
        exported(tmp_path, replace(checkpoint, probe_labels=[]), int8=True)


def test_macro_f1_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    targets, predicted = rng.random((2, 40, 7)) < 0.3
    expected = sklearn.metrics.f1_score(targets, predicted, average="macro")
    assert macro_f1(targets, predicted) == pytest.approx(expected)
