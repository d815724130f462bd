"""A graph in ONNX Runtime whose inputs and outputs are those it must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from export.bundle import BundleError
from export.feeds import Feed

# Fastest first; ONNX Runtime offers only those that its installed build has.
PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")

Signature = Mapping[str, tuple[str, int]]
"""ONNX type and number of axes by name."""


class Graph:
    """A loaded graph.

    Raises:
        BundleError: It cannot be loaded, or has other inputs or outputs.
    """

    def __init__(self, path: Path, threads: int, inputs: Signature, outputs: Signature) -> None:
        self._session = _session(path, threads)
        _check(self._session, path, inputs, outputs)

    @property
    def providers(self) -> list[str]:
        """The execution providers that really loaded."""
        return list(self._session.get_providers())

    def run(self, outputs: Sequence[str], feed: Feed) -> list[Any]:
        """The named outputs; the others are computed all the same."""
        answers: list[Any] = self._session.run(outputs, feed)
        return answers


def one_line(error: Exception) -> str:
    """What an error says, short enough for a sentence."""
    return " ".join(str(error).split())[:200]


def _session(path: Path, threads: int) -> Any:  # noqa: ANN401 - onnxruntime has no types
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    providers = [name for name in PROVIDERS if name in ort.get_available_providers()]
    try:
        return ort.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # ONNX Runtime's errors share no other base
        raise BundleError(
            f"{path} cannot be loaded ({one_line(error)}); export the model again"
        ) from error


def _check(
    session: Any,  # noqa: ANN401 - onnxruntime has no types
    path: Path,
    inputs: Signature,
    outputs: Signature,
) -> None:
    for what, found, expected in (
        ("inputs", session.get_inputs(), inputs),
        ("outputs", session.get_outputs(), outputs),
    ):
        signature = {node.name: (node.type, len(node.shape)) for node in found}
        if signature != expected:
            raise BundleError(
                f"{path} must have the {what} {_text(expected)}, "
                f"it has {_text(signature)}; export the model again"
            )


def _text(signature: Signature) -> str:
    return ", ".join(f"{name} {kind} with {axes} axes" for name, (kind, axes) in signature.items())
