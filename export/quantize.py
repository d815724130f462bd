"""Matrices of a graph in 8 bits, kept only if the labels that it predicts stay as good."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic

from export.bundle import DATA_SUFFIX, BundleError
from export.to_onnx import save_proto

MOST_LOST = 0.005
"""Of macro-F1 on the probe rows, 0 to 1."""


def quantize(path: Path) -> None:
    """Put the matrices of a saved graph into 8 bits, each column with a scale of its own.

    Activations are put into 8 bits as they come, by the largest of a whole batch.
    """
    model = onnx.load(path)
    # What the exporter noted about shapes inside no longer holds, and the quantiser believes it.
    del model.graph.value_info[:]
    small = path.with_name(f"small-{path.name}")
    quantize_dynamic(model, small, per_channel=True, weight_type=QuantType.QInt8)
    path.with_name(path.name + DATA_SUFFIX).unlink(missing_ok=True)
    save_proto(onnx.load(small), path)
    small.unlink()


def check_quality(
    scores: NDArray[np.float32],
    exact: NDArray[np.float32],
    label_sets: Sequence[Sequence[int]],
    threshold: float,
) -> dict[str, float]:
    """Compare the macro-F1 of scores (rows, labels) in 8 and in 32 bits; refuse what lost much."""
    if len(label_sets) < len(scores):
        raise BundleError(
            "--int8 needs the labels of the test rows, which this model.pt does not hold: train it "
            "again"
        )
    targets = np.zeros(scores.shape, bool)
    for row, labels in zip(targets, label_sets, strict=False):
        row[list(labels)] = True
    before, after = (macro_f1(targets, values >= threshold) for values in (exact, scores))
    if not after >= before - MOST_LOST:
        raise BundleError(
            f"in 8 bits the macro-F1 of {len(scores)} test rows falls from {before:.3f} to "
            f"{after:.3f}, more than {MOST_LOST} is not allowed: export the model without --int8"
        )
    return {"macro_f1": after, "macro_f1_float32": before, "rows": len(scores)}


def macro_f1(targets: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Mean F1 of the labels that occur among the targets or the predictions, (rows, labels)."""
    hits = (targets & predicted).sum(axis=0)
    total = targets.sum(axis=0) + predicted.sum(axis=0)
    occurs = total > 0
    return float((2 * hits[occurs] / total[occurs]).mean()) if occurs.any() else 0.0
