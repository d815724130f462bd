"""What a bundle tells of its training: what lies beside the checkpoint and is of its weights."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from export.origin import origin_of
from train.checkpoint import Checkpoint

SPLIT = {"rule": "60/20/20", "seed": 0, "fraction": 1.0, "train": 6, "validation": 2, "test": 2}
TEST_SCORES = {"example_f1": 0.1 + 0.2, "micro_f1": 0.5}
CHECKPOINT = Checkpoint(
    name="some-ce", method="ce", task="multilabel", config={"lr": 0.1}, dataset="some",
    shape={}, labels=["a"], features=[], scaling=None, weights={}, thresholds={},
    scores={"test": TEST_SCORES, "validation": {}}, split=SPLIT, seed=3, epoch=4,
    probe=torch.zeros(0, 1), versions={},
)  # fmt: skip


def write_metrics(folder, **changes):
    metrics = {
        "scores": {
            "fixed": TEST_SCORES,
            "tuned": {"example_f1": 0.6, "micro_f1": 0.7},
            "per_label": {"example_f1": 0.65, "micro_f1": 0.75},
            "oracle": {"example_f1": 0.9},
        },
        "config": {},
        "finished": True,
        "command": "python -m train ce --dataset some --out /home/me/runs --overwrite",
    }
    (folder / "metrics.json").write_text(json.dumps({**metrics, **changes}), "utf-8")


def test_scores_are_those_at_thresholds_that_the_bundle_has(tmp_path):
    write_metrics(tmp_path)
    origin = origin_of(CHECKPOINT, tmp_path / "model.pt")
    assert (origin.split, origin.seed, origin.epoch, origin.config) == (SPLIT, 3, 4, {"lr": 0.1})
    assert origin.command == "python -m train ce --dataset some"
    assert origin.scores == {
        "tuned": {"example_f1": 0.6},  # the threshold of micro-F1 is another one
        "per_label": {"example_f1": 0.65, "micro_f1": 0.75},
    }


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "metrics.json").unlink(),
        lambda folder: (folder / "metrics.json").write_text("{", "utf-8"),
        lambda folder: write_metrics(folder, scores={"fixed": {"example_f1": 0.3}}),
    ],
    ids=["missing", "damaged", "of other weights"],
)
def test_metrics_that_are_not_of_these_weights_do_not_count(tmp_path, damage):
    write_metrics(tmp_path)
    damage(tmp_path)
    origin = origin_of(CHECKPOINT, tmp_path / "model.pt")
    assert (origin.split, origin.epoch) == (SPLIT, 4)
    assert origin.command is origin.scores is None


def test_without_a_split_nothing_is_said(tmp_path):
    write_metrics(tmp_path)
    assert origin_of(replace(CHECKPOINT, split={"rule": "60/20/20"}), tmp_path / "model.pt") is None
