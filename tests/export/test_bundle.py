"""The bundle's own checks; that exports give the same answers is in test_every_method."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from export.bundle import (
    ENERGY,
    MODEL,
    BundleError,
    Contents,
    InputSpec,
    Manifest,
    Thresholds,
    drafted,
    load_bundle,
    write_bundle,
)

MANIFEST = Manifest(
    name="some-ce",
    version="0123456789ab",
    method="ce",
    task="multilabel",
    dataset="some",
    input=InputSpec(kind="features", width=3),
    label_count=2,
    thresholds=Thresholds(tuned=0.4, per_label=[0.3, 0.5]),
    test_scores={"example_f1": 0.5},
    largest_difference=1e-7,
    versions={"torch": "2"},
)


# The least that is an ONNX file: a version alone.
GRAPH, SLOW_GRAPH = b"\x08\x0a", b"\x08\x09"


def write(path, manifest=MANIFEST, labels=("a", "ß"), energy_scores=None, files=(), **contents):
    with drafted(path) as folder:
        (folder / MODEL).write_bytes(GRAPH)
        if energy_scores is not None:
            (folder / ENERGY).write_bytes(SLOW_GRAPH)
        for name, content in dict(files).items():
            (folder / name).write_bytes(content)
        contents = {
            "probe": {"features": np.zeros((1, 3), np.float32)},
            "probe_scores": np.full((1, 2), 0.5, np.float32),
            **contents,
        }
        return write_bundle(
            folder,
            manifest,
            Contents(labels=list(labels), energy_scores=energy_scores, **contents),
        )


@pytest.fixture
def bundle(tmp_path):
    write(tmp_path / "model.bundle")
    return tmp_path / "model.bundle"


def edit_manifest(bundle, **changes):
    path = bundle / "manifest.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, **changes}))


def test_what_was_written_is_read(bundle):
    loaded = load_bundle(bundle)
    assert replace(loaded.manifest, files={}, version="0123456789ab") == MANIFEST
    assert len(loaded.manifest.version) == 12
    assert loaded.labels == ["a", "ß"]
    assert loaded.model_path.read_bytes() == GRAPH
    assert loaded.per_label.tolist() == pytest.approx([0.3, 0.5])
    assert sorted(loaded.manifest.files) == ["README.md", "labels.json", "model.onnx", "probe.npz"]


def test_writing_again_replaces_the_bundle_and_leaves_no_scrap(bundle):
    write(bundle, replace(MANIFEST, name="other"))
    assert load_bundle(bundle).manifest.name == "other"
    assert list(bundle.parent.iterdir()) == [bundle]


def test_a_folder_of_something_else_is_never_replaced(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    with pytest.raises(BundleError, match="exists and is not a bundle"):
        write(tmp_path / "mine")
    assert (tmp_path / "mine/thesis.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_output_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="choose another --out"):
        write(tmp_path / "file/model.bundle")


@pytest.mark.parametrize("name", ["model.onnx", "labels.json", "probe.npz"])
def test_a_flipped_bit_in_any_file_is_found(bundle, name):
    content = bytearray((bundle / name).read_bytes())
    content[-1] ^= 1
    (bundle / name).write_bytes(content)
    with pytest.raises(BundleError, match=f"{name} was changed after its export"):
        load_bundle(bundle)


def test_a_file_of_another_size_and_a_missing_one_are_told(bundle):
    (bundle / "model.onnx").write_bytes(b"longer graph")
    with pytest.raises(BundleError, match="has 12 bytes instead of 2"):
        load_bundle(bundle)
    (bundle / "model.onnx").unlink()
    with pytest.raises(BundleError, match=r"model\.onnx is missing"):
        load_bundle(bundle)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"schema": 99}, "has bundle schema 99"),
        ({"files": {}}, "must list labels.json, model.onnx, probe.npz and nothing unknown"),
        (
            {"files": {"../../etc/passwd": {"sha256": "", "bytes": 1}}},
            "must list labels.json, model.onnx, probe.npz and nothing unknown",
        ),
        ({"thresholds": {}}, "is incomplete"),
        ({"surprise": 1}, "is incomplete"),
        ({"label_count": 3}, "has 2 of 3 names"),
    ],
)
def test_a_manifest_that_cannot_be_right_is_refused(bundle, changes, sentence):
    edit_manifest(bundle, **changes)
    with pytest.raises(BundleError, match=sentence):
        load_bundle(bundle)


@pytest.mark.parametrize("content", ["", "[1]", "{", '"text"'])
def test_a_manifest_that_is_none_is_refused(bundle, content):
    (bundle / "manifest.json").write_text(content)
    with pytest.raises(BundleError, match=r"cannot be read|schema None"):
        load_bundle(bundle)


def test_an_energy_network_is_a_second_graph_with_scores_of_its_own(bundle, tmp_path):
    assert load_bundle(bundle).energy() is None
    scores = np.full((1, 2), 0.25, np.float32)
    write(tmp_path / "two.bundle", energy_scores=scores)
    two = load_bundle(tmp_path / "two.bundle")
    energy = two.energy()
    assert energy.model_path.read_bytes() == SLOW_GRAPH
    assert np.array_equal(energy.probe_scores, scores)
    assert energy.manifest.name == "some-ce, energy"
    assert two.model_path.read_bytes() == GRAPH
    (tmp_path / "two.bundle" / "energy.onnx").write_bytes(GRAPH)
    with pytest.raises(BundleError, match=r"energy\.onnx was changed after its export"):
        load_bundle(tmp_path / "two.bundle")
