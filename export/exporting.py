"""From checkpoint to bundle: rebuild, export, prove, write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import nn

from export.bundle import (
    ENCODER,
    ENERGY,
    INDEX,
    MODEL,
    SEARCH,
    TOKENIZER,
    WORDS,
    BundleError,
    Contents,
    drafted,
    write_bundle,
)
from export.feeds import alone, cut
from export.inputs import ProbeRows, probe_rows
from export.manifest import InputSpec, Manifest, Search, Thresholds
from export.origin import origin_of
from export.quantize import check_quality, quantize
from export.to_onnx import (
    descends,
    embedder_of,
    embeds,
    export_predictor,
    filed_table,
    is_filed,
    network_of,
    save_encoder,
    save_graph,
    save_search,
    table_of,
    without_path,
)
from export.verify import Parity, check_parity, check_path, check_search, scores_of
from train.checkpoint import Checkpoint, load_checkpoint
from train.errors import CheckpointError, needs_extra
from train.nets.segmentation import CropAverage, CropDescent
from train.nets.tagging import WordDescent, WordTaskNet

STORED_ROWS = 64
"""Probe rows that a bundle keeps: a server runs them before it is ready."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """How a bundle is made."""

    name: str | None = None
    with_energy: bool = False
    int8: bool = False
    index: Literal["ivf"] | None = None
    constrained: bool = False


def export_checkpoint(path: Path, out: Path, options: ExportOptions) -> tuple[Manifest, Parity]:
    """Write the bundle of a checkpoint; nothing is written unless the graphs prove equal."""
    checkpoint = load_checkpoint(path)
    _check_probe(checkpoint, path)
    predictor = checkpoint.predictor()
    _check_options(predictor, options)
    energy = checkpoint.energy_predictor() if options.with_energy else None
    only_features = energy is not None or descends(predictor)
    rows = probe_rows(checkpoint, predictor, as_features=only_features)
    with Console(stderr=True).status("exporting the graph"), drafted(out) as folder:
        has_table = is_filed(predictor)
        parity = _proved(
            checkpoint, predictor, rows, folder / MODEL, int8=options.int8 and has_table
        )
        search, quantized = None, None
        if has_table:
            search = _search(predictor, rows, options, folder)
        elif options.int8:
            parity, quantized = _quantized(checkpoint, parity, rows, folder / MODEL)
        energy_parity = (
            None if energy is None else _proved(checkpoint, energy, rows, folder / ENERGY)
        )
        manifest = _manifest(checkpoint, rows.spec, parity, options)
        size = None
        if embeds(predictor):
            size = save_encoder(folder / MODEL, rows.spec.graph_kind, folder / ENCODER)
        manifest = replace(
            manifest,
            embedding_size=size,
            label_table=filed_table(folder / MODEL, manifest.label_count),
            search=_index(predictor, rows, folder) if options.index else search,
            quantized=quantized,
            constrained=options.constrained,
            origin=origin_of(checkpoint, path),
        )
        stored = min(STORED_ROWS, len(parity.scores))
        contents = Contents(
            labels=checkpoint.labels,
            probe=cut(rows.feed, 0, stored),
            probe_scores=_stored_scores(checkpoint, parity, rows, stored),
            probe_texts=None if rows.texts is None else rows.texts[:stored],
            energy_scores=None if energy_parity is None else energy_parity.scores[:stored],
        )
        _write_text_encoder(checkpoint, folder)
        manifest = write_bundle(folder, manifest, contents)
    return manifest, parity


def _proved(
    checkpoint: Checkpoint, predictor: nn.Module, rows: ProbeRows, path: Path, *, int8: bool = False
) -> Parity:
    """Write the graph of a predictor and compare it; one that descends also step by step."""
    spec, way = rows.spec, 0.0
    width = spec.max_tokens or spec.width or 0
    n_labels = checkpoint.shape["n_labels"]
    model = export_predictor(predictor, width, n_labels, kind=spec.graph_kind, int8=int8)
    if descends(predictor):
        way = check_path(predictor, model, rows.inputs[0])
        model = without_path(model)
    save_graph(model, path)
    parity = check_parity(predictor, path, rows.inputs, feed=rows.feed)
    return replace(parity, largest_difference=max(way, parity.largest_difference))


def _stored_scores(
    checkpoint: Checkpoint, parity: Parity, rows: ProbeRows, stored: int
) -> NDArray[np.float32]:
    """The scores of the rows that a bundle keeps; of words, of as many as these rows have."""
    scores = parity.scores[:stored]
    if "word_pieces" not in rows.feed:
        return scores
    words = int((rows.feed["word_pieces"][:stored] > 0).sum(axis=1).max())
    return scores[:, : words * checkpoint.shape["n_labels"]]


def _quantized(
    checkpoint: Checkpoint, parity: Parity, rows: ProbeRows, path: Path
) -> tuple[Parity, dict[str, float]]:
    """Put a proved graph into 8 bits; its own scores are what a server has to repeat."""
    quantize(path)
    count = len(parity.scores)
    # In 8 bits a row's scores depend on those beside it, so it must be good both ways.
    by_itself = scores_of(path, [alone(rows.feed, row) for row in range(count)])
    together = scores_of(path, [cut(rows.feed, 0, count)])
    threshold = float(checkpoint.thresholds["tuned"])
    qualities = [
        check_quality(scores, parity.scores, checkpoint.probe_labels, threshold)
        for scores in (by_itself, together)
    ]
    worse = min(qualities, key=lambda quality: quality["macro_f1"])
    moved = {"mean_moved_by_batch": float(np.abs(by_itself - together).mean())}
    return replace(parity, scores=by_itself), {**worse, **moved}


def _write_text_encoder(checkpoint: Checkpoint, folder: Path) -> None:
    text = checkpoint.text
    if text is not None:
        name, content = (
            (WORDS, text["encoder"]) if text["kind"] == "tfidf" else (TOKENIZER, text["tokenizer"])
        )
        (folder / name).write_text(content, encoding="utf-8")


def _search(
    predictor: nn.Module, rows: ProbeRows, options: ExportOptions, folder: Path
) -> Search | None:
    """Write the graph that finds the best labels of a large table; say how well, if not exactly."""
    save_search(folder / MODEL, rows.spec.graph_kind, folder / SEARCH)
    recall = check_search(predictor, folder / SEARCH, rows.inputs, rows.feed)
    return Search(kind="int8", recall=recall, rows=len(rows.inputs[0])) if options.int8 else None


def _index(predictor: nn.Module, rows: ProbeRows, folder: Path) -> Search:
    with needs_extra("ann", "--index ivf"):
        from export.index import build_index  # noqa: PLC0415 - needs the extra
    with torch.no_grad():
        queries = embedder_of(predictor)(*map(torch.from_numpy, rows.inputs))
    return build_index(table_of(predictor).numpy(), queries.numpy(), folder / INDEX)


def _check_options(predictor: nn.Module, options: ExportOptions) -> None:
    network = network_of(predictor)
    if isinstance(network, WordDescent) or (
        isinstance(network, WordTaskNet) and (options.with_energy or options.int8)
    ):
        raise BundleError(
            "of models that label words, ce and seal are exported, in 32 bits and without "
            "--with-energy"
        )
    if options.constrained and not isinstance(network, WordTaskNet):
        raise BundleError("--constrained is for models that label words: export it without")
    if isinstance(network, CropDescent) or (
        isinstance(network, CropAverage) and options.with_energy
    ):
        raise BundleError(
            "an energy network of images descends through convolutions in 32 bits, where runtimes "
            "differ by more than the proof of equality allows: export ce or seal, without "
            "--with-energy"
        )
    if options.index is not None and not embeds(predictor):
        raise BundleError(
            "--index is for networks whose scores are inner products with a label table, which "
            "this one's are not: export it without"
        )
    if options.int8 and (descends(predictor) or options.with_energy):
        raise BundleError("--int8 is not for energy networks, whose every step is compared")


def _check_probe(checkpoint: Checkpoint, path: Path) -> None:
    width, labels = checkpoint.shape["n_features"], checkpoint.shape["n_labels"]
    is_tokens = checkpoint.text is not None and checkpoint.text["kind"] != "tfidf"
    count = len(checkpoint.texts if is_tokens else checkpoint.probe)
    if checkpoint.probe.dim() != 2 or checkpoint.probe.shape[1] != width or not count:
        raise CheckpointError(f"{path} holds no usable test rows: train the model again")
    if len(checkpoint.labels) != labels:
        raise CheckpointError(
            f"{path} names {len(checkpoint.labels)} of {labels} labels: train again"
        )


def _manifest(
    checkpoint: Checkpoint, spec: InputSpec, parity: Parity, options: ExportOptions
) -> Manifest:
    return Manifest(
        name=options.name or checkpoint.name,
        version="",  # known when the files are
        method=checkpoint.method,
        task=checkpoint.task,
        dataset=checkpoint.dataset,
        input=spec,
        label_count=len(checkpoint.labels),
        thresholds=Thresholds(**checkpoint.thresholds),
        test_scores=checkpoint.scores["test"],
        largest_difference=parity.largest_difference,
        versions={
            **checkpoint.versions,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "onnx": onnx.__version__,
            "onnxruntime": ort.__version__,
            "labelwright": version("labelwright"),
        },
    )
