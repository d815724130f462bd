"""Prove that the exported graph gives the checkpoint's answers, or refuse the export."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from torch import nn

from export.bundle import PROBE_TOLERANCE, BundleError
from export.to_onnx import WithPath

PATH_ROWS = 8
"""Rows whose whole descent is compared: every point of it is as large as all their scores."""


@dataclass(frozen=True, kw_only=True)
class Parity:
    """How far ONNX Runtime is from torch on real rows."""

    rows: int
    largest_difference: float
    scores: NDArray[np.float32]
    """What torch gave, (rows, labels)."""


def check_parity(
    predictor: nn.Module, model: bytes, rows: NDArray[np.float32], *, top_k: int = 10
) -> Parity:
    """Compare all scores and the best labels, for the rows together and one by one."""
    with torch.no_grad():
        expected = predictor(torch.from_numpy(rows)).sigmoid().numpy()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    k = min(top_k, expected.shape[1])
    together = _run(session, rows, k)
    # A graph frozen to the batch size or the k of its tracing would pass one of these only.
    alone = [_run(session, rows[i : i + 1], 1) for i in range(min(len(rows), 4))]
    difference = float(np.abs(together["scores"] - expected).max())
    for i, answer in enumerate(alone):
        difference = max(difference, float(np.abs(answer["scores"][0] - expected[i]).max()))
    _check_difference(difference, "the exported graph")
    _check_top(together, expected, k)
    return Parity(rows=len(rows), largest_difference=difference, scores=expected)


def check_path(predictor: nn.Module, model: bytes, rows: NDArray[np.float32]) -> float:
    """Compare every point of a descent; return the largest difference of any of them."""
    rows = rows[:PATH_ROWS]
    with torch.no_grad():
        _, expected = WithPath(predictor)(torch.from_numpy(rows))
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    (path,) = session.run(["path"], {"features": rows, "k": np.array(1, dtype=np.int64)})
    difference = float(np.abs(path - expected.numpy()).max())
    _check_difference(difference, "the exported descent")
    return difference


def _check_difference(difference: float, what: str) -> None:
    if not difference <= PROBE_TOLERANCE:
        raise BundleError(
            f"{what} differs from the checkpoint by {difference:.2g} "
            f"(at most {PROBE_TOLERANCE:.0e} is allowed): it is not written; please report this"
        )


def _run(
    session: ort.InferenceSession, rows: NDArray[np.float32], k: int
) -> dict[str, NDArray[np.float32]]:
    names = ["scores", "top_scores", "top_labels"]
    values = session.run(names, {"features": rows, "k": np.array(k, dtype=np.int64)})
    return dict(zip(names, values, strict=True))


def _check_top(
    answer: dict[str, NDArray[np.float32]], expected: NDArray[np.float32], k: int
) -> None:
    """Labels may swap where scores are equal within the tolerance, so compare their scores."""
    picked = np.take_along_axis(expected, answer["top_labels"].astype(np.int64), axis=1)
    best = -np.sort(-expected, axis=1)[:, :k]
    if not (
        np.allclose(picked, best, rtol=0, atol=PROBE_TOLERANCE)
        and np.allclose(answer["top_scores"], best, rtol=0, atol=PROBE_TOLERANCE)
    ):
        raise BundleError(
            "the exported graph ranks labels otherwise than the checkpoint: "
            "it is not written; please report this"
        )
