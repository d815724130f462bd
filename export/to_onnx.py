"""A trained predictor as an ONNX graph with scaling, sigmoid and top-k inside."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import torch
from torch import Tensor, nn
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from train.nets.inference import GradientInference

OPSET = 20


class ServedModel(nn.Module):
    """Rows and k in; all scores, and the k best with their label numbers, out.

    The k best are chosen among logits: sigmoids near one would tie in float32.
    """

    def __init__(self, predictor: nn.Module) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, features: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map (rows, width) and () to scores (rows, labels), top scores and labels (rows, k)."""
        logits = self.predictor(features)
        count: Any = k.item()  # an int when run, a symbol while traced
        torch._check(count >= 1)
        torch._check(count <= logits.shape[1])
        top_logits, top_labels = torch.topk(logits, count, dim=1)
        return logits.sigmoid(), top_logits.sigmoid(), top_labels


def export_predictor(predictor: nn.Module, width: int, n_labels: int) -> bytes:
    """Write the graph of a predictor: any number of rows, any k up to the number of labels."""
    predictor = _without_autograd(predictor, width)
    example = (torch.zeros(2, width), torch.tensor(min(2, n_labels)))
    with _quiet():
        program = torch.onnx.export(
            ServedModel(predictor).eval(),
            example,
            dynamo=True,
            opset_version=OPSET,
            input_names=["features", "k"],
            output_names=["scores", "top_scores", "top_labels"],
            dynamic_shapes=({0: torch.export.Dim("rows")}, {}),
            external_data=False,
            verbose=False,
        )
    assert program is not None  # noqa: S101 - by dynamo=True
    model = program.model_proto
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _without_autograd(predictor: nn.Module, width: int) -> nn.Module:
    """Replace inference by gradients, which the exporter cannot follow, by what it computes.

    Tracing turns every gradient into ordinary operations. "symbolic" keeps the number of rows
    open; with real numbers it would be frozen to that of the example, without a word.
    """
    if not any(isinstance(part, GradientInference) for part in predictor.modules()):
        return predictor
    trace = make_fx(
        predictor.requires_grad_(False),
        decomposition_table=dict(core_aten_decompositions().items()),
        tracing_mode="symbolic",
        _allow_non_fake_inputs=True,
    )
    return trace(torch.zeros(2, width))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's notes about optional packages; its errors still come through."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
