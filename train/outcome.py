"""What a training run leaves behind, as plain values: the content of model.pt and metrics.json."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from train.batches import TokenRows
from train.checkpoint import Checkpoint
from train.config import config_values
from train.loop import Position
from train.machine import machine, versions
from train.options import RunOptions
from train.preparing import Prepared
from train.problem import feature_matrix
from train.scoring import Judgement
from train.top_scores import MOST_LABELS

PROBE_VALUES = 1 << 20
"""Numbers that the example rows in a checkpoint may hold together."""
PROBE_ROWS = 64
PROBE_TEXTS = 256
"""More than rows: the graph of a text encoder in 8 bits is judged by the labels of these, and with
64 of them one label more or less moves macro-F1 by as much as is allowed."""


def checkpoint_of(
    prepared: Prepared,
    position: Position,
    weights: dict[str, Tensor],
    teacher: dict[str, Tensor],
    judgement: Judgement,
) -> Checkpoint:
    """Everything that `model.pt` holds."""
    data, scaling = prepared.data, prepared.problem.scaling
    return Checkpoint(
        name=f"{data.name}-{prepared.method_name}",
        method=prepared.method_name,
        task=data.task,
        config=config_values(prepared.resolved),
        dataset=data.name,
        shape=prepared.problem.shape.values(),
        labels=list(data.labels),
        features=list(data.features),
        scaling=None if scaling is None else scaling.tensors(),
        weights=weights,
        teacher=teacher,
        thresholds={
            "tuned": judgement.threshold,
            "per_label": judgement.label_thresholds.tolist(),
        },
        scores={"test": judgement.fixed, "validation": judgement.validation},
        split=_split_values(prepared),
        seed=prepared.options.seed,
        epoch=position.best_epoch,
        probe=_probe_rows(prepared),
        versions=versions(),
        text=None if prepared.texts is None else prepared.texts.saved,
        texts=_probe_texts(prepared),
        probe_labels=_probe_labels(prepared),
    )


def _probe_rows(prepared: Prepared) -> Tensor:
    """Some test rows as the user has them, for proving that an export gives the same answers."""
    data, texts = prepared.data, prepared.texts
    if texts is not None and texts.saved["kind"] != "tfidf":
        return torch.zeros(0, prepared.problem.shape.n_features)
    matrix = feature_matrix(data) if texts is None else texts.rows
    assert not isinstance(matrix, TokenRows)  # noqa: S101 - those are tokens
    rows = matrix[_probe(prepared)]
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    return torch.from_numpy(np.ascontiguousarray(dense, dtype=np.float32))


def _probe_texts(prepared: Prepared) -> list[Any]:
    words = prepared.data.words
    if words is not None:
        return [words.rows[row].values() for row in _probe(prepared)]
    inputs = prepared.data.inputs
    return [inputs[row] for row in _probe(prepared)] if isinstance(inputs, list) else []


def _probe_labels(prepared: Prepared) -> list[list[int]]:
    targets = prepared.data.targets[_probe(prepared)]
    return [labels.tolist() for labels in np.split(targets.indices, targets.indptr[1:-1])]


def _probe(prepared: Prepared) -> np.ndarray:
    """The numbers of the first test rows."""
    most = PROBE_ROWS if prepared.texts is None else PROBE_TEXTS
    count = max(1, min(most, PROBE_VALUES // prepared.problem.shape.n_features))
    return prepared.split.test[:count]


def metrics_of(prepared: Prepared, position: Position, judgement: Judgement) -> dict[str, Any]:
    """What `metrics.json` says, but whether the run is finished."""
    columns = asdict(judgement)
    thresholds = {"tuned": columns.pop("threshold")}
    per_label = columns.pop("label_thresholds").tolist()
    if len(per_label) <= MOST_LABELS:  # others are in model.pt
        thresholds["per_label"] = per_label
    return {
        "method": prepared.method_name,
        "kind": prepared.config.variant,
        "dataset": prepared.data.name,
        "preset": prepared.options.preset,
        "seed": prepared.options.seed,
        "data": _data_values(prepared.options),
        "split": _split_values(prepared),
        "epochs": position.epoch,
        "best_epoch": position.best_epoch,
        "seconds": round(position.seconds, 3),
        "scores": columns,
        "thresholds": thresholds,
        "config": config_values(prepared.config),
        "command": prepared.command,
        "commit": prepared.commit,
        "versions": versions(),
        "machine": machine(prepared.problem.device),
    }


def _data_values(options: RunOptions) -> dict[str, Any]:
    """What loads the same rows again; which of them were in which part is in split.npz."""
    folder = None if options.data_dir is None else str(options.data_dir)
    return {"dataset": options.dataset, "data_dir": folder, **options.reader_options()}


def _split_values(prepared: Prepared) -> dict[str, Any]:
    train, validation, test = prepared.split.sizes()
    return {
        "rule": prepared.split.rule,
        "seed": prepared.options.split_seed,
        "fraction": prepared.options.fraction,
        "train": train,
        "validation": validation,
        "test": test,
    }
