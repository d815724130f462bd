"""OnnxPredictor: arrays in, arrays out. It knows bundles and ONNX Runtime, and nothing of HTTP."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export.bundle import PROBE_TOLERANCE, Bundle, BundleError

# Fastest first; ONNX Runtime offers only those that its installed build has.
PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")
# (ONNX type, number of axes) of what a bundle's graph must take and give.
INPUTS = {"features": ("tensor(float)", 2), "k": ("tensor(int64)", 0)}
OUTPUTS = {
    "scores": ("tensor(float)", 2),
    "top_scores": ("tensor(float)", 2),
    "top_labels": ("tensor(int64)", 2),
}
WARM_UP_RUNS, WARM_UP_SECONDS = 3, 0.1


@dataclass(frozen=True, slots=True)
class Scored:
    """What a model says about some rows."""

    top_scores: NDArray[np.float32]
    """(rows, k), falling."""
    top_labels: NDArray[np.int64]
    """(rows, k), columns of `top_scores`."""
    scores: NDArray[np.float32] | None
    """(rows, labels), only when asked for."""


class OnnxPredictor:
    """A loaded model that has proved to give the scores its bundle promises.

    Raises:
        BundleError: The graph cannot be loaded, has other inputs or outputs than a bundle's graph
            must have, or scores the probe rows differently.
    """

    def __init__(self, bundle: Bundle, *, threads: int = 1, max_batch_rows: int = 64) -> None:
        self.bundle = bundle
        self.manifest = bundle.manifest
        self.labels = bundle.labels
        _check_manifest(bundle)
        self._session = _session(bundle, threads)
        _check_graph(self._session, bundle)
        self._replay_probe()
        self.max_batch_rows = max_batch_rows
        self.seconds_per_batch = self._warm_up()
        """Seconds that a full batch takes, measured now."""

    @property
    def providers(self) -> list[str]:
        """The execution providers that really loaded."""
        return list(self._session.get_providers())

    def run(self, features: NDArray[np.float32], k: int, *, with_scores: bool = False) -> Scored:
        """Score rows of shape (rows, width), and rank the best `k` labels of each."""
        feed = {"features": features, "k": np.array(k, dtype=np.int64)}
        if with_scores:
            return Scored(*self._session.run(["top_scores", "top_labels", "scores"], feed))
        top_scores, top_labels = self._session.run(["top_scores", "top_labels"], feed)
        return Scored(top_scores, top_labels, None)

    def _replay_probe(self) -> None:
        path, features = self.bundle.path, self.bundle.probe_features
        try:
            scores = self.run(features, 1, with_scores=True).scores
        except Exception as error:  # ONNX Runtime's errors share no other base
            raise BundleError(
                f"{path}: the probe rows cannot be scored ({_one_line(error)}); export it again"
            ) from error
        expected = self.bundle.probe_scores
        if scores is None or scores.shape != expected.shape or scores.size == 0:
            raise BundleError(
                f"{path}: expected probe scores of shape {expected.shape}; export it again"
            )
        difference = float(np.abs(scores - expected).max())
        if not difference <= PROBE_TOLERANCE:
            raise BundleError(
                f"{path}: scores of the probe rows differ from the bundle's by {difference:.2g}, "
                f"more than {PROBE_TOLERANCE:g}; export it again on this kind of machine"
            )

    def _warm_up(self) -> float:
        width, k = self.manifest.input.width, min(5, self.manifest.label_count)
        rows = np.resize(self.bundle.probe_features, (self.max_batch_rows, width))
        seconds: list[float] = []
        while len(seconds) < WARM_UP_RUNS or sum(seconds) < WARM_UP_SECONDS:
            started = time.perf_counter()
            self.run(rows, k)
            seconds.append(time.perf_counter() - started)
        # The best: the first run allocates, and other processes can only make the rest slower.
        return min(seconds)


def _check_manifest(bundle: Bundle) -> None:
    manifest = bundle.manifest
    if manifest.input.kind != "features":
        raise BundleError(
            f"{bundle.path} takes {manifest.input.kind!r} input, this version serves 'features': "
            "serve it with a newer version"
        )
    if len(manifest.thresholds.per_label) != manifest.label_count:
        raise BundleError(
            f"{bundle.path} has {len(manifest.thresholds.per_label)} thresholds for "
            f"{manifest.label_count} labels; export it again"
        )


def _session(bundle: Bundle, threads: int) -> Any:  # noqa: ANN401 - onnxruntime has no types
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    providers = [name for name in PROVIDERS if name in ort.get_available_providers()]
    try:
        return ort.InferenceSession(str(bundle.model_path), options, providers=providers)
    except Exception as error:  # ONNX Runtime's errors share no other base
        raise BundleError(
            f"{bundle.model_path} cannot be loaded ({_one_line(error)}); export the model again"
        ) from error


def _check_graph(session: Any, bundle: Bundle) -> None:  # noqa: ANN401 - onnxruntime has no types
    for what, found, expected in (
        ("inputs", session.get_inputs(), INPUTS),
        ("outputs", session.get_outputs(), OUTPUTS),
    ):
        signature = {node.name: (node.type, len(node.shape)) for node in found}
        if signature != expected:
            raise BundleError(
                f"{bundle.model_path} must have the {what} {_signature_text(expected)}, "
                f"it has {_signature_text(signature)}; export the model again"
            )


def _signature_text(signature: dict[str, tuple[str, int]]) -> str:
    return ", ".join(f"{name} {kind} with {axes} axes" for name, (kind, axes) in signature.items())


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
