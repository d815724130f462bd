"""Rows as a graph takes them, by kind: as torch sees them while it is traced, and as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from export.feeds import GRAPH_INPUTS, Feed, padded
from export.manifest import ImageSize, InputSpec
from train.batches import GREATEST_DENSITY
from train.checkpoint import Checkpoint
from train.encoding import TokenEncoder
from train.word_pieces import WordEncoder, WordRow

LEAST_SPARSE_WIDTH = 4096
"""Narrower rows are sent as fast in full."""


@dataclass(frozen=True)
class GraphInputs:
    """The inputs of a graph of one kind: a key of `GRAPH_INPUTS`."""

    kind: str
    width: int
    """Numbers in a row; for tokens the most of them."""

    def examples(self) -> tuple[Tensor, ...]:
        """Two rows for tracing."""
        if self.kind == "features":
            return (torch.zeros(2, self.width),)
        if self.kind == "sparse":
            return torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3)
        lengths = (5, 5, 5, 3) if self.kind == "words" else (5, 5)
        # Not one tensor several times: tracing would take them for one input.
        return tuple(torch.ones(2, length, dtype=torch.int64) for length in lengths)

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        """Which axes may have any length."""
        rows = torch.export.Dim("rows")
        if self.kind == "features":
            return ({0: rows},)
        if self.kind == "sparse":
            shape = {0: rows, 1: torch.export.Dim("stored")}
        else:
            shape = {0: rows, 1: torch.export.Dim("length", max=self.width)}
        if self.kind == "words":
            return shape, shape, shape, {0: rows, 1: torch.export.Dim("words")}
        return shape, shape

    def rows(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """The inputs of the graph as the arguments of a network."""
        if self.kind == "sparse":
            return (PaddedRows(tensors[0], tensors[1], self.width),)
        return tuple(tensors)


class Trunk(nn.Module):
    """A network whose arguments are the inputs of a graph."""

    def __init__(self, network: nn.Module, inputs: GraphInputs) -> None:
        super().__init__()
        self.network = network
        self.inputs = inputs

    def forward(
        self,
        first: Tensor,
        second: Tensor | None = None,
        third: Tensor | None = None,
        fourth: Tensor | None = None,
    ) -> Tensor:
        """Map the inputs of a graph to what the network gives; one by one, as tracing wants."""
        tensors = [tensor for tensor in (first, second, third, fourth) if tensor is not None]
        answer: Tensor = self.network(*self.inputs.rows(tensors))
        return answer


@dataclass(frozen=True)
class PaddedRows:
    """Rows of which only stored values are at hand, as a network multiplies them with a matrix.

    Padding is index 0 with value 0, which adds nothing.
    """

    indices: Tensor  # (rows, stored)
    values: Tensor  # (rows, stored)
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.indices.shape[0], self.width

    def __len__(self) -> int:
        return self.indices.shape[0]

    def __matmul__(self, weight: Tensor) -> Tensor:
        """X W for W = `weight`, (width, d): (rows, d)."""
        gathered = functional.embedding(self.indices, weight)  # (rows, stored, d)
        return torch.bmm(self.values.unsqueeze(1), gathered).squeeze(1)

    def to_dense(self) -> Tensor:
        """Return the rows as a dense matrix."""
        zeros = self.values.new_zeros(self.indices.shape[0], self.width)
        return zeros.scatter_add(1, self.indices, self.values)


@dataclass(frozen=True, kw_only=True)
class ProbeRows:
    """The probe rows of a checkpoint, as the graph and as torch takes them."""

    spec: InputSpec
    feed: Feed
    inputs: list[NDArray[Any]]
    """The arguments of the predictor."""
    texts: list[Any] | None
    """What a request would hold, where that is not numbers."""


def probe_rows(checkpoint: Checkpoint, predictor: nn.Module, *, as_features: bool) -> ProbeRows:
    """Encode the probe rows of a checkpoint, and say what rows of the bundle must be.

    Args:
        checkpoint: The trained model.
        predictor: Its network.
        as_features: Whether a graph of the bundle takes nothing but features.
    """
    text = checkpoint.text
    if text is not None and text["kind"] == "words":
        return _probe_words(checkpoint, text)
    if text is not None and text["kind"] == "tokens":
        encoder = TokenEncoder(text["tokenizer"], text["max_tokens"])
        ids, mask = encoder.encode(checkpoint.texts)
        spec = InputSpec(
            kind="text", encoding="tokens", max_tokens=text["max_tokens"], graph="tokens"
        )
        feed = {"input_ids": ids, "attention_mask": mask}
        return ProbeRows(spec=spec, feed=feed, inputs=[ids, mask], texts=checkpoint.texts)
    width = checkpoint.shape["n_features"]
    kind = "features" if as_features else kind_of_rows(checkpoint, predictor)
    image = checkpoint.shape.get("image")
    spec = InputSpec(
        kind=kind,
        width=width,
        names=checkpoint.features or None,
        image=None if image is None else ImageSize(**image),
    )
    if text is not None:
        spec = InputSpec(kind="text", encoding="tfidf", width=width, graph=kind)
    return ProbeRows(
        spec=spec,
        feed=feed_of(kind, checkpoint.probe),
        inputs=[checkpoint.probe.to_dense().numpy()],
        texts=None if text is None else checkpoint.texts,
    )


def _probe_words(checkpoint: Checkpoint, text: dict[str, Any]) -> ProbeRows:
    encoder = WordEncoder(text["tokenizer"], text["max_tokens"])
    feed = encoder.encode([WordRow.from_values(values) for values in checkpoint.texts])
    return ProbeRows(
        spec=InputSpec(kind="words", max_tokens=text["max_tokens"], predicate=text["predicate"]),
        feed=feed,
        inputs=[feed[name] for name in GRAPH_INPUTS["words"]],
        texts=checkpoint.texts,
    )


def kind_of_rows(checkpoint: Checkpoint, predictor: nn.Module) -> str:
    """Whether rows are best sent as `features` or, being wide and mostly zero, as `sparse`."""
    probe, width = checkpoint.probe, checkpoint.shape["n_features"]
    is_wide = checkpoint.scaling is None and width >= LEAST_SPARSE_WIDTH
    if not is_wide or _density(probe) > GREATEST_DENSITY:
        return "features"
    return "sparse" if takes_sparse(predictor, width) else "features"


def takes_sparse(predictor: nn.Module, width: int) -> bool:
    """Whether a network does with rows nothing but multiply them with a matrix, or fill them up."""
    inputs = GraphInputs("sparse", width)
    try:
        with torch.no_grad():
            predictor(*inputs.rows(inputs.examples()))
    except (TypeError, AttributeError):
        return False
    return True


def feed_of(kind: str, probe: Tensor) -> Feed:
    """Probe rows (rows, width), dense or sparse, as the inputs of a graph of that kind."""
    if kind == "features":
        return {"features": probe.to_dense().numpy()}
    coordinates = probe.to_sparse().coalesce()
    rows, columns = coordinates.indices().numpy()
    counts = np.bincount(rows, minlength=len(probe))
    return padded(counts, columns, coordinates.values().numpy())


def _density(probe: Tensor) -> float:
    stored = probe._nnz() if probe.layout != torch.strided else int(probe.count_nonzero())
    return stored / max(1, probe.shape[0] * probe.shape[1])
