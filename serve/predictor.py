"""OnnxPredictor: rows in, arrays out. It knows bundles and ONNX Runtime, and nothing of HTTP."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from export.bundle import (
    ENCODER,
    INDEX,
    INT8_TOLERANCE,
    MODEL,
    PROBE_TOLERANCE,
    SEARCH,
    Bundle,
    BundleError,
)
from export.feeds import GRAPH_INPUTS, Feed, cut, repeated
from serve.encoders import Encode, encoder_of
from serve.inputs import DenseRows, Parts, Rows, TextRows, WordRows, in_order, sparse_rows
from serve.label_index import LabelIndex
from serve.sessions import CPU, Graph, one_line
from train.word_pieces import WordRow

K = {"k": ("tensor(int64)", 0)}
OUTPUTS = {
    "scores": ("tensor(float)", 2),
    "top_scores": ("tensor(float)", 2),
    "top_labels": ("tensor(int64)", 2),
}
EMBEDDING = {"embedding": ("tensor(float)", 2)}
SCORED = ("top_scores", "top_labels", "scores")
WARM_UP_SECONDS = 0.1


RowText = tuple[list[int], bytes]
"""The best columns of a row, and their scores as JSON without brackets."""


# Not frozen, as those would cost four times as much to make, and one is made for each request.
@dataclass(slots=True)
class Scored:
    """What a model says about some rows."""

    top_scores: NDArray[np.float32]
    """(rows, k), falling."""
    top_labels: NDArray[np.int64]
    """(rows, k), columns of `scores`; of models of words, the best of each word in turn."""
    scores: NDArray[np.float32] | None
    """(rows, labels), only when asked for."""
    _texts: list[RowText] | None = field(default=None, init=False, repr=False)

    def rows(self, start: int, end: int) -> Scored:
        """What it says about some of them."""
        scores = None if self.scores is None else self.scores[start:end]
        return Scored(self.top_scores[start:end], self.top_labels[start:end], scores)

    def texts(self) -> list[RowText]:
        """The ranking of each row; that of a whole batch costs little more than that of one."""
        if self._texts is None:
            scores = np.ascontiguousarray(self.top_scores)
            # Writes float32 with as few digits as tell it from its neighbours.
            text = orjson.dumps(scores, option=orjson.OPT_SERIALIZE_NUMPY)
            columns = self.top_labels.tolist()
            self._texts = list(zip(columns, text[2:-2].split(b"],["), strict=True))
        return self._texts


@dataclass(slots=True)
class Embedded:
    """The vectors of some rows."""

    vectors: NDArray[np.float32]
    """(rows, size)."""

    def rows(self, start: int, end: int) -> Embedded:
        """Those of some of them."""
        return Embedded(self.vectors[start:end])


class OnnxEmbedder:
    """The part of a model that turns rows into vectors."""

    def __init__(self, bundle: Bundle, encode: Encode, *, threads: int, provider: str) -> None:
        inputs = GRAPH_INPUTS[bundle.manifest.input.graph_kind]
        self._graph = Graph(bundle.path / ENCODER, threads, inputs, EMBEDDING, provider)
        self._encode = encode
        self.reads_text = bundle.probe_texts is not None
        self.seconds_per_batch = 0.0
        """Measured once the model it belongs to is loaded."""

    def run(self, rows: Rows, k: int = 0, *, with_scores: bool = False) -> Embedded:
        """Embed rows; `k` and `with_scores` are for models that score."""
        del k, with_scores
        return Embedded(self.vectors(self._encode(rows)))

    def vectors(self, parts: Parts) -> NDArray[np.float32]:
        """Vectors (rows, size) of rows that are encoded already."""
        answers = [self._graph.run(["embedding"], feed)[0] for feed in parts.feeds]
        return in_order(answers, parts.order)


class OnnxPredictor:
    """A loaded model that has proved to give the scores its bundle promises.

    Raises:
        BundleError: The graph cannot be loaded, has other inputs or outputs than a bundle's graph
            must have, or scores the probe rows differently.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int = 1,
        max_batch_rows: int = 128,
        provider: str = "auto",
    ) -> None:
        started = time.perf_counter()
        self.bundle = bundle
        self.manifest = bundle.manifest
        self.labels = bundle.labels
        self.reads_text = bundle.probe_texts is not None
        inputs = GRAPH_INPUTS[bundle.manifest.input.graph_kind]
        self._graph = Graph(bundle.model_path, threads, {**inputs, **K}, OUTPUTS, provider)
        self._encode = encoder_of(bundle, on_cpu=self.providers[0] == CPU)
        self._search = self._graph
        """For the best labels alone."""
        if bundle.has(SEARCH) and bundle.graph == MODEL:
            top = {name: kind for name, kind in OUTPUTS.items() if name != "scores"}
            self._search = Graph(bundle.path / SEARCH, threads, {**inputs, **K}, top, provider)
        self.embedder: OnnxEmbedder | None = None
        if bundle.has(ENCODER):
            self.embedder = OnnxEmbedder(bundle, self._encode, threads=threads, provider=provider)
        self._index: LabelIndex | None = None
        if bundle.manifest.search is not None and bundle.has(INDEX):
            self._index = LabelIndex(bundle, bundle.manifest.search, threads=threads)
        self._replay_probe()
        self.max_batch_rows = max_batch_rows
        self.seconds_per_batch = _warm_up(self, self.probe_rows(max_batch_rows))
        """Seconds that a full batch takes, measured now."""
        if self.embedder is not None:
            self.embedder.seconds_per_batch = self.seconds_per_batch
        self.load_seconds = time.perf_counter() - started
        """From the verified files to here."""

    @property
    def providers(self) -> list[str]:
        """The execution providers that really loaded."""
        return self._graph.providers

    def probe_rows(self, count: int | None = None) -> Rows:
        """The bundle's own rows, or as many of them, repeated."""
        bundle = self.bundle
        if bundle.probe_texts is not None:
            texts = bundle.probe_texts
            chosen = [texts[i % len(texts)] for i in range(count or len(texts))]
            if bundle.manifest.input.kind == "words":
                return WordRows([WordRow.from_values(values) for values in chosen])
            return TextRows(chosen)
        return _rows_of(bundle.probe if count is None else repeated(bundle.probe, count))

    def run(self, rows: Rows, k: int, *, with_scores: bool = False) -> Scored:
        """Score rows, and rank the best `k` labels of each."""
        parts = self._encode(rows)
        if self._index is not None and self.embedder is not None and not with_scores:
            return Scored(*self._index.search(self.embedder.vectors(parts), k), None)
        return self._by_graph(parts, k, with_scores=with_scores)

    def run_exactly(self, rows: Rows, k: int) -> Scored:
        """Rank the best `k` labels without an index, even where there is one."""
        return self._by_graph(self._encode(rows), k)

    def _by_graph(self, parts: Parts, k: int, *, with_scores: bool = False) -> Scored:
        names = ["top_scores", "top_labels", "scores"] if with_scores else list(OUTPUTS)[1:]
        count = np.array(k, dtype=np.int64)
        graph = self._graph if with_scores else self._search
        answers = [graph.run(names, {**feed, "k": count}) for feed in parts.feeds]
        arrays = [in_order(part, parts.order) for part in zip(*answers, strict=True)]
        return Scored(arrays[0], arrays[1], arrays[2] if with_scores else None)

    def _probe_answers(self) -> Scored:
        """Scores of the probe rows; in 8 bits of each by itself, as others would change them."""
        if self.manifest.quantized is None:
            return self.run(self.probe_rows(), 1, with_scores=True)
        texts, count = self.bundle.probe_texts, len(self.bundle.probe_scores)
        each = [
            self.run(
                TextRows([texts[row]]) if texts else _rows_of(cut(self.bundle.probe, row, row + 1)),
                1,
                with_scores=True,
            )
            for row in range(count)
        ]
        arrays = ([getattr(one, name) for one in each] for name in SCORED)
        return Scored(*map(np.concatenate, arrays))

    def _replay_probe(self) -> None:
        path, expected = self.bundle.path, self.bundle.probe_scores
        try:
            best = self._probe_answers()
            scores = best.scores
            if self._search is not self._graph or self._index is not None:
                best = self.run(self.probe_rows(), 1)
        except Exception as error:  # ONNX Runtime's errors share no other base
            raise BundleError(
                f"{path}: the probe rows cannot be scored ({one_line(error)}); export it again"
            ) from error
        if scores is None or scores.shape != expected.shape or scores.size == 0:
            raise BundleError(
                f"{path}: expected probe scores of shape {expected.shape}; export it again"
            )
        picked = np.take_along_axis(expected, best.top_labels, axis=1)
        differences = [scores - expected, best.top_scores - picked]
        difference = float(np.max([np.abs(values).max() for values in differences]))
        allowed = PROBE_TOLERANCE if self.manifest.quantized is None else INT8_TOLERANCE
        if not difference <= allowed:
            raise BundleError(
                f"{path}: scores of the probe rows differ from the bundle's by {difference:.2g}, "
                f"more than {allowed:g}; export it again on this kind of machine"
            )


def _rows_of(feed: Feed) -> Rows:
    return DenseRows(feed["features"]) if "features" in feed else sparse_rows(feed)


def _warm_up(predictor: Any, rows: Rows) -> float:  # noqa: ANN401 - one that is half built
    k = min(5, predictor.manifest.label_count)
    seconds: list[float] = []
    while sum(seconds) < WARM_UP_SECONDS:
        started = time.perf_counter()
        predictor.run(rows, k)
        seconds.append(time.perf_counter() - started)
    # The best: other processes can only make the rest slower.
    return min(seconds)
