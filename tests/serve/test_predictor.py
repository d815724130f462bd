from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper

from export.bundle import BundleError, InputSpec, Thresholds, load_bundle
from serve.inputs import DenseRows
from serve.predictor import OnnxPredictor
from train.errors import ConfigError


def test_scores_and_ranks_as_the_formula_says(model, bundle_path):
    predictor = OnnxPredictor(load_bundle(bundle_path))
    rows = np.array(model.rows(4), dtype=np.float32)
    expected = model.scores(rows)
    scored = predictor.run(DenseRows(rows), 3, with_scores=True)
    np.testing.assert_allclose(scored.scores, expected, atol=1e-6)
    np.testing.assert_array_equal(scored.top_labels, np.argsort(-expected, axis=1)[:, :3])
    np.testing.assert_allclose(scored.top_scores, -np.sort(-expected, axis=1)[:, :3], atol=1e-6)
    assert predictor.run(DenseRows(rows), 3).scores is None


def test_inputs_and_outputs_bound_for_a_device_give_the_same(model, bundle_path):
    predictor = OnnxPredictor(load_bundle(bundle_path))
    rows = np.asfortranarray(np.array(model.rows(4), dtype=np.float32))
    expected = predictor.run(DenseRows(rows), 3, with_scores=True)
    predictor._graph._is_bound = True
    found = predictor.run(DenseRows(rows), 3, with_scores=True)
    for name in ("scores", "top_scores", "top_labels"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_warm_up_measures_a_full_batch(bundle_path):
    predictor = OnnxPredictor(load_bundle(bundle_path), threads=2, max_batch_rows=7)
    assert predictor.seconds_per_batch > 0
    assert "CPUExecutionProvider" in predictor.providers


def refused(path):
    with pytest.raises(BundleError) as caught:
        OnnxPredictor(load_bundle(path))
    return str(caught.value)


@pytest.mark.parametrize("shift", [2e-5, np.nan])
def test_other_scores_than_the_probe_s_are_refused(model, write, tmp_path, shift):
    probe = np.array(model.rows(3, seed=99), dtype=np.float32)
    scores = model.scores(probe).astype(np.float32)
    scores[1, 2] += shift
    message = refused(write(tmp_path / "b", model, probe_scores=scores))
    assert "scores of the probe rows differ from the bundle's by" in message


def test_a_probe_of_another_shape_is_refused(model, write, tmp_path):
    path = write(tmp_path / "b", model, probe_scores=np.zeros((3, 1), dtype=np.float32))
    assert "expected probe scores of shape (3, 1)" in refused(path)


def test_a_probe_that_cannot_be_scored_is_refused(model, other_model, write, tmp_path):
    path = write(tmp_path / "b", model, graph=other_model.graph())
    assert "the probe rows cannot be scored" in refused(path)


def test_a_graph_with_other_inputs_is_refused(model, write, tmp_path):
    graph = model.graph()
    graph.graph.input[0].name = "x"
    graph.graph.node[0].input[0] = "x"
    message = refused(write(tmp_path / "b", model, graph=graph))
    assert "must have the inputs features tensor(float) with 2 axes" in message
    assert "it has x tensor(float)" in message


def test_a_graph_with_missing_outputs_is_refused(model, write, tmp_path):
    graph = model.graph()
    del graph.graph.output[0]
    assert "must have the outputs scores" in refused(write(tmp_path / "b", model, graph=graph))


def test_a_graph_that_is_none_is_refused(model, write, tmp_path):
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    node = helper.make_node("NoSuchOperator", ["x"], ["y"])
    graph = helper.make_model(helper.make_graph([node], "g", [], [value]))
    message = refused(write(tmp_path / "b", model, graph=graph))
    assert "cannot be loaded" in message
    assert "\n" not in message


def test_a_bundle_of_another_input_kind_is_refused(model, write, tmp_path):
    path = write(tmp_path / "b", model, input=InputSpec(kind="smell", width=6))
    assert "takes 'smell' input, which this version does not know" in refused(path)


def test_thresholds_must_fit_the_labels(model, write, tmp_path):
    path = write(tmp_path / "b", model, thresholds=Thresholds(tuned=0.5, per_label=[0.5]))
    assert "has 1 thresholds for 8 labels" in refused(path)


def test_a_provider_that_is_not_installed_is_one_sentence(bundle_path):
    with pytest.raises(ConfigError, match="--provider openvino needs onnxruntime-openvino"):
        OnnxPredictor(load_bundle(bundle_path), provider="openvino")
    assert OnnxPredictor(load_bundle(bundle_path), provider="cpu").providers == [
        "CPUExecutionProvider"
    ]


def test_a_provider_that_does_not_load_is_refused(bundle_path, monkeypatch):
    """A build may have a provider whose libraries are missing; ONNX Runtime takes the CPU then."""
    session = SimpleNamespace(get_providers=lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(
        "serve.sessions.ort.get_available_providers",
        lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"],
    )
    monkeypatch.setattr("serve.sessions.ort.InferenceSession", lambda *_, **__: session)
    with pytest.raises(ConfigError, match=r"--provider cuda did not load, .* CPUExecutionProvider"):
        OnnxPredictor(load_bundle(bundle_path), provider="cuda")
