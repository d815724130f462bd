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


def check_parity(
    predictor: nn.Module,
    model: ir.Model | Path,
    rows: NDArray[np.float32] | Sequence[NDArray[Any]],
    *,
    feed: Feed | None = None,
    top_k: int = 10,
) -> Parity:
    """Compare all scores and the best labels, for rows together and one by one.

    Args:
        predictor: What torch runs.
        model: The graph, saved or not.
        rows: The argument of the predictor, or all of them: features, or tokens and their mask.
        feed: The same rows as the graph takes them, if not as `features`.
        top_k: How many labels are compared.
    """
    inputs = [torch.from_numpy(array) for array in _listed(rows)]
    feed = {"features": inputs[0].numpy()} if feed is None else feed
    difference, kept = 0.0, None
    with _session(model) as session:
        for part, logits in _parts(predictor, inputs, feed):
            expected = logits.sigmoid().numpy()
            kept = expected if kept is None else kept
            k = min(top_k, logits.shape[1]) if len(logits) > 1 else 1
            difference = max(difference, _compare(session, part, expected, k))
    assert kept is not None  # noqa: S101 - a checkpoint without rows is refused before
    return Parity(rows=len(inputs[0]), largest_difference=difference, scores=kept)


def check_search(
    predictor: nn.Module, search: Path, rows: Sequence[NDArray[Any]], feed: Feed, top_k: int = 10
) -> float:
    """Compare the best labels that a search finds; return the share of them that it found."""
    inputs = [torch.from_numpy(array) for array in rows]
    found = wanted = 0
    with _session(search) as session:
        for part, logits in _parts(predictor, inputs, feed):
            k = min(top_k, logits.shape[1])
            names = ["top_scores", "top_labels"]
            top_scores, top_labels = session.run(names, {**part, "k": np.array(k)})
            # Among logits: sigmoids near one would tie.
            picked = logits.gather(1, torch.from_numpy(top_labels))
            _check_ranking(top_scores, picked.sigmoid().numpy())
            best = torch.topk(logits, k, dim=1).values[:, -1:]
            least = best - PROBE_TOLERANCE * best.abs().clamp(min=1)
            found += int((picked >= least).sum())
            wanted += picked.numel()
    if found < LEAST_RECALL * wanted:
        raise BundleError(
            f"the search in 8 bits finds {found / wanted:.1%} of the best labels, at least "
            f"{LEAST_RECALL:.0%} are required: export the model without --int8"
        )
    return found / wanted


def _parts(
    predictor: nn.Module, inputs: Sequence[Tensor], feed: Feed
) -> Iterator[tuple[Feed, Tensor]]:
    """All rows, as many at once as their scores allow, and the first ones again, one by one.

    A graph frozen to the batch size or the k of its tracing would pass one of the two only.
    """
    first = _logits(predictor, [array[:1] for array in inputs])
    n_rows, at_once = len(inputs[0]), max(1, MOST_SCORES // first.shape[1])
    spans = [(start, start + at_once) for start in range(0, n_rows, at_once)]
    for start, end in spans + [(i, i + 1) for i in range(min(n_rows, 4))]:
        yield cut(feed, start, end), _logits(predictor, [array[start:end] for array in inputs])


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


def scores_of(model: Path, feeds: Sequence[Feed]) -> NDArray[np.float32]:
    """What a saved graph scores in one call for each feed, (all rows, labels)."""
    k = np.array(1, dtype=np.int64)
    with _session(model) as session:
        return np.concatenate([session.run(["scores"], {**feed, "k": k})[0] for feed in feeds])


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
    expected: NDArray[np.float32],
    k: int,
) -> float:
    """Compare scores (rows, labels) and the k best; return the largest difference."""
    names = ["scores", "top_scores", "top_labels"]
    scores, top_scores, top_labels = session.run(names, {**feed, "k": np.array(k, dtype=np.int64)})
    difference = float(np.abs(scores - expected).max())
    _check_difference(difference, "the exported graph")
    # Labels may swap where scores are equal within the tolerance, so compare their scores.
    picked = np.take_along_axis(expected, top_labels, axis=1)
    if "word_pieces" in feed:  # one label a word
        best = expected.reshape(*top_labels.shape, -1).max(axis=2)
    else:
        best = -np.sort(np.partition(-expected, k - 1, axis=1)[:, :k], axis=1)
    _check_ranking(top_scores, picked)
    _check_ranking(best, picked)
    return difference


def _check_ranking(scores: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    if not np.allclose(scores, expected, rtol=0, atol=PROBE_TOLERANCE):
        raise BundleError(
            "the exported graph ranks labels otherwise than the checkpoint: "
            "it is not written; please report this"
        )


def _check_difference(difference: float, what: str) -> None:
    if not difference <= PROBE_TOLERANCE:
        raise BundleError(
            f"{what} differs from the checkpoint by {difference:.2g} "
            f"(at most {PROBE_TOLERANCE:.0e} is allowed): it is not written; please report this"
        )
