"""Prove that the exported graph gives the checkpoint's answers, or refuse the export."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from export.bundle import PROBE_TOLERANCE, BundleError
from export.feeds import Feed, cut
from export.to_onnx import WithPath, save_graph

PATH_ROWS = 8
"""Rows whose whole descent is compared: every point of it is as large as all their scores."""
MOST_SCORES = 2**22
"""Scores that are compared at once, and that a bundle keeps: fewer rows where labels are many."""
LEAST_RECALL = 0.98
"""Of the 10 best labels, where not every label is scored exactly."""


@dataclass(frozen=True, kw_only=True)
class Parity:
    """How far ONNX Runtime is from torch on real rows."""

    rows: int
    largest_difference: float
    scores: NDArray[np.float32]
    """What torch gave for the first rows, (some rows, labels)."""
    recall: float
    """Share of the best labels that the graph found; 1 where it must find all."""


@dataclass
class Tally:
    """What the comparison of some rows adds to."""

    difference: float = 0.0
    found: int = 0
    wanted: int = 0


def check_parity(
    predictor: nn.Module,
    model: ir.Model | Path,
    rows: NDArray[np.float32] | Sequence[NDArray[Any]],
    *,
    feed: Feed | None = None,
    top_k: int = 10,
    is_exact: bool = True,
) -> Parity:
    """Compare all scores and the best labels, for rows together and one by one.

    Args:
        predictor: What torch runs.
        model: The graph, saved or not.
        rows: The argument of the predictor, or all of them: features, or tokens and their mask.
        feed: The same rows as the graph takes them, if not as `features`.
        top_k: How many labels are compared.
        is_exact: Whether the graph must find all the best labels; if not, `LEAST_RECALL` of them.
    """
    inputs = [torch.from_numpy(np.asarray(array)) for array in _listed(rows)]
    feed = {"features": inputs[0].numpy()} if feed is None else feed
    with _session(model) as session:
        first = _logits(predictor, [array[:1] for array in inputs])
        n_rows, k = len(inputs[0]), min(top_k, first.shape[1])
        at_once = max(1, MOST_SCORES // first.shape[1])
        tally, kept = Tally(), None
        for start in range(0, n_rows, at_once):
            part = slice(start, start + at_once)
            logits = _logits(predictor, [array[part] for array in inputs])
            kept = logits.sigmoid().numpy() if kept is None else kept
            _compare(session, cut(feed, start, start + at_once), logits, k, is_exact, tally)
        # A graph frozen to the batch size or the k of its tracing would pass the others only.
        for i in range(min(n_rows, 4)):
            logits = _logits(predictor, [array[i : i + 1] for array in inputs])
            _compare(session, cut(feed, i, i + 1), logits, 1, is_exact, tally)
    assert kept is not None  # noqa: S101 - a checkpoint without rows is refused before
    recall = 1.0 if is_exact else tally.found / tally.wanted
    _check_recall(recall)
    return Parity(rows=n_rows, largest_difference=tally.difference, scores=kept, recall=recall)


def check_path(predictor: nn.Module, model: ir.Model, rows: NDArray[np.float32]) -> float:
    """Compare every point of a descent; return the largest difference of any of them."""
    rows = rows[:PATH_ROWS]
    with torch.no_grad():
        _, expected = WithPath(predictor)(torch.from_numpy(rows))
    with _session(model) as session:
        (path,) = session.run(["path"], {"features": rows, "k": np.array(1, dtype=np.int64)})
    difference = float(np.abs(path - expected.numpy()).max())
    _check_difference(difference, "the exported descent")
    return difference


def _listed(rows: NDArray[Any] | Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
    return [rows] if isinstance(rows, np.ndarray) else rows


@torch.no_grad()
def _logits(predictor: nn.Module, inputs: Sequence[Tensor]) -> Tensor:
    logits: Tensor = predictor(*inputs)
    return logits


@contextmanager
def _session(model: ir.Model | Path) -> Iterator[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        if isinstance(model, ir.Model):
            save_graph(model, path)
        else:
            path = model
        yield ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _compare(
    session: Any,  # noqa: ANN401 - onnxruntime has no types
    feed: Feed,
    logits: Tensor,
    k: int,
    is_exact: bool,
    tally: Tally,
) -> None:
    names = ["scores", "top_scores", "top_labels"]
    scores, top_scores, top_labels = session.run(names, {**feed, "k": np.array(k, dtype=np.int64)})
    expected = logits.sigmoid().numpy()
    tally.difference = max(tally.difference, float(np.abs(scores - expected).max()))
    if not np.isfinite(scores).all():
        tally.difference = float("nan")
    _check_difference(tally.difference, "the exported graph")
    picked = np.take_along_axis(expected, top_labels, axis=1)
    best = torch.topk(logits, k, dim=1).values
    # Labels may swap where scores are equal within the tolerance, so compare their scores.
    if not np.allclose(top_scores, picked, rtol=0, atol=PROBE_TOLERANCE) or (
        is_exact and not np.allclose(picked, best.sigmoid().numpy(), rtol=0, atol=PROBE_TOLERANCE)
    ):
        raise BundleError(
            "the exported graph ranks labels otherwise than the checkpoint: "
            "it is not written; please report this"
        )
    # Among logits: sigmoids near one would tie.
    found = logits.gather(1, torch.from_numpy(top_labels))
    least = best[:, -1:] - PROBE_TOLERANCE * best[:, -1:].abs().clamp(min=1)
    tally.found += int((found >= least).sum())
    tally.wanted += found.numel()


def _check_difference(difference: float, what: str) -> None:
    if not difference <= PROBE_TOLERANCE:
        raise BundleError(
            f"{what} differs from the checkpoint by {difference:.2g} "
            f"(at most {PROBE_TOLERANCE:.0e} is allowed): it is not written; please report this"
        )


def _check_recall(recall: float) -> None:
    if not recall >= LEAST_RECALL:
        raise BundleError(
            f"the graph in 8 bits finds {recall:.1%} of the best labels, at least "
            f"{LEAST_RECALL:.0%} are required: export the model without --int8"
        )
