"""A graph in ONNX Runtime whose inputs and outputs are those it must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from export.bundle import BundleError
from export.feeds import Feed
from train.errors import ConfigError

CPU = "CPUExecutionProvider"
PROVIDERS = {
    "tensorrt": "TensorrtExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "cpu": CPU,
}
"""ONNX Runtime's names of what `--provider` may be; an installed build has only some of them."""
AUTO = ("cuda", "cpu")
"""Tried in this order unless one is named."""
PACKAGES = {"openvino": "onnxruntime-openvino"}
GPU_PACKAGE = "onnxruntime-gpu"

Signature = Mapping[str, tuple[str, int]]
"""ONNX type and number of axes by name."""


class Graph:
    """A loaded graph.

    Raises:
        BundleError: It cannot be loaded, or has other inputs or outputs.
    """

    def __init__(
        self,
        path: Path,
        threads: int,
        inputs: Signature,
        outputs: Signature,
        provider: str = "auto",
    ) -> None:
        self._session = _session(path, threads, provider)
        _check(self._session, path, inputs, outputs)
        self._is_bound = self.providers[0] != CPU

    @property
    def providers(self) -> list[str]:
        """The execution providers that really loaded."""
        return list(self._session.get_providers())

    def run(self, outputs: Sequence[str], feed: Feed) -> list[Any]:
        """The named outputs; the others are computed all the same."""
        if self._is_bound:
            return _run_bound(self._session, outputs, feed)
        answers: list[Any] = self._session.run(outputs, feed)
        return answers


def _run_bound(session: Any, outputs: Sequence[str], feed: Feed) -> list[Any]:  # noqa: ANN401 - onnxruntime has no types
    """The named outputs, by inputs and outputs that are bound before the call.

    For devices other than the CPU: there, where nothing has to be copied, it takes some 25 µs more
    than `run`.
    """
    binding = session.io_binding()
    for name, array in feed.items():
        # What is not contiguous would be read as if it were.
        binding.bind_cpu_input(name, np.asarray(array, order="C"))
    for name in outputs:
        binding.bind_output(name)
    session.run_with_iobinding(binding)
    answers: list[Any] = binding.copy_outputs_to_cpu()
    return answers


def one_line(error: Exception) -> str:
    """What an error says, short enough for a sentence."""
    return " ".join(str(error).split())[:200]


def provider_names(provider: str) -> list[str]:
    """ONNX Runtime's names of the providers to try for `--provider`, the best first.

    Raises:
        ConfigError: The installed build does not have the one that is named.
    """
    available = ort.get_available_providers()
    if provider == "auto":
        return [PROVIDERS[name] for name in AUTO if PROVIDERS[name] in available]
    if PROVIDERS[provider] not in available:
        known = [name for name, full in PROVIDERS.items() if full in available]
        raise ConfigError(
            f"--provider {provider} needs {PACKAGES.get(provider, GPU_PACKAGE)} in place of "
            f"onnxruntime; the installed build has {', '.join(known)}"
        )
    # Operators that it does not know are left to the CPU.
    return list(dict.fromkeys((PROVIDERS[provider], CPU)))


def _check_provider(session: Any, provider: str) -> None:  # noqa: ANN401 - onnxruntime has no types
    """ONNX Runtime goes on with the CPU where a provider's libraries are missing."""
    loaded = session.get_providers()
    if provider != "auto" and PROVIDERS[provider] not in loaded:
        raise ConfigError(
            f"--provider {provider} did not load, ONNX Runtime took {', '.join(loaded)} instead: "
            "install its libraries, or leave the option out"
        )


def _session(path: Path, threads: int, provider: str) -> Any:  # noqa: ANN401 - onnxruntime has no types
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    providers = provider_names(provider)
    try:
        session = ort.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # ONNX Runtime's errors share no other base
        raise BundleError(
            f"{path} cannot be loaded ({one_line(error)}); export the model again"
        ) from error
    _check_provider(session, provider)
    return session


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
