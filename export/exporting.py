"""From checkpoint to bundle: rebuild, export, prove, write."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from rich.console import Console

from export.bundle import InputSpec, Manifest, Thresholds, write_bundle
from export.to_onnx import export_predictor
from export.verify import Parity, check_parity
from train.checkpoint import Checkpoint, load_checkpoint
from train.errors import CheckpointError


def export_checkpoint(path: Path, out: Path, *, name: str | None = None) -> tuple[Manifest, Parity]:
    """Write the bundle of a checkpoint; nothing is written unless the graph proves equal."""
    checkpoint = load_checkpoint(path)
    _check_probe(checkpoint, path)
    predictor = checkpoint.predictor()
    with Console(stderr=True).status("exporting the graph"):
        model = export_predictor(
            predictor, checkpoint.shape["n_features"], checkpoint.shape["n_labels"]
        )
        rows = checkpoint.probe.numpy()
        parity = check_parity(predictor, model, rows)
    manifest = _manifest(checkpoint, model, parity, name or checkpoint.name)
    write_bundle(
        out,
        manifest,
        model=model,
        labels=checkpoint.labels,
        probe_features=rows,
        probe_scores=parity.scores,
    )
    return manifest, parity


def _check_probe(checkpoint: Checkpoint, path: Path) -> None:
    width, labels = checkpoint.shape["n_features"], checkpoint.shape["n_labels"]
    if (
        checkpoint.probe.dim() != 2
        or checkpoint.probe.shape[1] != width
        or not len(checkpoint.probe)
    ):
        raise CheckpointError(f"{path} holds no usable test rows: train the model again")
    if len(checkpoint.labels) != labels:
        raise CheckpointError(
            f"{path} names {len(checkpoint.labels)} of {labels} labels: train again"
        )


def _manifest(checkpoint: Checkpoint, model: bytes, parity: Parity, name: str) -> Manifest:
    return Manifest(
        name=name,
        version=hashlib.sha256(model).hexdigest()[:12],
        method=checkpoint.method,
        task=checkpoint.task,
        dataset=checkpoint.dataset,
        input=InputSpec(
            kind="features",
            width=checkpoint.shape["n_features"],
            names=checkpoint.features or None,
        ),
        label_count=len(checkpoint.labels),
        thresholds=Thresholds(**checkpoint.thresholds),
        test_scores=checkpoint.scores["test"],
        largest_difference=parity.largest_difference,
        versions={
            **checkpoint.versions,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "onnx": onnx.__version__,
            "onnxruntime": ort.__version__,
            "labelwright": version("labelwright"),
        },
    )
