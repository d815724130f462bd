"""What `manifest.json` of a bundle says, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ImageSize:
    """Pixels of an image that a model takes: red, green, blue of each, line after line."""

    height: int
    width: int


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """What one row must be."""

    kind: str
    """`features`: a vector of `width` numbers; `sparse`: the same, few of them not zero; `text`;
    `words`: a list of words, each of which bears one of the labels."""
    width: int | None = None
    """Numbers in a row; for text the words that are counted, if any are."""
    names: list[str] | None = None
    """Feature names in column order, where the data set has them."""
    encoding: str | None = None
    """Of text: `tokens` for a graph that takes token numbers, `tfidf` for weighted word counts."""
    max_tokens: int | None = None
    """Tokens of a text, or of words, that are looked at."""
    predicate: bool | None = None
    """Of words: whether each row has one of them marked."""
    image: ImageSize | None = None
    """Of rows that are images, whose labels are their pixels: `width` numbers of 0 to 255."""
    graph: str | None = None
    """What the graph is fed with, where that is not `kind`: a key of `GRAPH_INPUTS`."""

    @property
    def graph_kind(self) -> str:
        """The key of `GRAPH_INPUTS` that says what the graph takes."""
        return self.graph or self.kind


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Scores from which a label counts as predicted, chosen on validation rows."""

    tuned: float
    """One threshold for all labels, best example-F1."""
    per_label: list[float] | None
    """One for each label, best F1 of that label; None: they are in thresholds.npy."""


@dataclass(frozen=True, kw_only=True)
class LabelTable:
    """Where the vectors of the labels lie in model.onnx.data, as float32."""

    size: int
    """Numbers in a vector."""
    offset: int
    by_label: bool
    """(labels, size) if so, else (size, labels)."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """How the best labels are found, where not every label is scored exactly."""

    kind: str
    """`int8`: all labels in 8 bits, the best again in 32; `ivf`: an index."""
    recall: float
    """Share of the 10 best labels that is found, over the checkpoint's probe rows."""
    rows: int
    """Rows that `recall` was measured on."""
    nprobe: int | None = None
    """Cells of the index that are searched."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Which training the weights came from."""

    split: dict[str, Any]
    """`rule`, `seed`, `fraction` and the rows of each part."""
    seed: int
    epoch: int
    config: dict[str, Any]
    """The hyper-parameters of the method."""
    command: str | None = None
    """What trains it again, without folders of the machine; None where metrics.json is missing."""
    scores: dict[str, dict[str, float]] | None = None
    """Of the test rows at the thresholds that travel along, `tuned` and `per_label`; likewise."""


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """Size and hash of one file, checked before anything of it is used."""

    sha256: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything about a bundle but its numbers."""

    name: str
    version: str
    """Twelve hex digits of a hash over the graph: the same weights have the same version."""
    method: str
    task: str
    dataset: str
    input: InputSpec
    label_count: int
    thresholds: Thresholds
    test_scores: dict[str, float]
    largest_difference: float
    """Between torch and ONNX Runtime, over the scores of the probe rows."""
    versions: dict[str, str]
    embedding_size: int | None = None
    """Of encoder.onnx, if there is one."""
    label_table: LabelTable | None = None
    """Where it is large; a small one is inside the graph."""
    search: Search | None = None
    quantized: dict[str, float] | None = None
    """For a graph in 8 bits: what was compared before it was written."""
    constrained: bool = False
    """Of words: spans keep the rules of `train.decoding`."""
    origin: Origin | None = None
    """None in early bundles, and where the checkpoint does not tell how rows were split."""
    schema: int = SCHEMA_VERSION
    files: dict[str, FileEntry] = field(default_factory=dict)
