"""From checkpoint to bundle: rebuild, export, prove, write."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from rich.console import Console
from torch import nn

from export.bundle import EnergyGraph, InputSpec, Manifest, Thresholds, write_bundle
from export.to_onnx import descends, export_predictor, without_path
from export.verify import Parity, check_parity, check_path
from train.checkpoint import Checkpoint, load_checkpoint
from train.errors import CheckpointError


def export_checkpoint(
    path: Path, out: Path, *, name: str | None = None, with_energy: bool = False
) -> tuple[Manifest, Parity]:
    """Write the bundle of a checkpoint; nothing is written unless the graphs prove equal."""
    checkpoint = load_checkpoint(path)
    _check_probe(checkpoint, path)
    predictor = checkpoint.predictor()
    energy = checkpoint.energy_predictor() if with_energy else None
    with Console(stderr=True).status("exporting the graph"):
        model, parity = _proved(checkpoint, predictor)
        graph = None
        if energy is not None:
            energy_model, energy_parity = _proved(checkpoint, energy)
            graph = EnergyGraph(model=energy_model, probe_scores=energy_parity.scores)
    manifest = _manifest(checkpoint, model, parity, name or checkpoint.name)
    write_bundle(
        out,
        manifest,
        model=model,
        labels=checkpoint.labels,
        probe_features=checkpoint.probe.numpy(),
        probe_scores=parity.scores,
        energy=graph,
    )
    return manifest, parity


def _proved(checkpoint: Checkpoint, predictor: nn.Module) -> tuple[bytes, Parity]:
    """Export a predictor and compare it; one that descends also step by step."""
    shape, rows = checkpoint.shape, checkpoint.probe.numpy()
    model, way = export_predictor(predictor, shape["n_features"], shape["n_labels"]), 0.0
    if descends(predictor):
        way = check_path(predictor, model, rows)
        model = without_path(model)
    parity = check_parity(predictor, model, rows)
    return model, replace(parity, largest_difference=max(way, parity.largest_difference))


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
