"""Which training a checkpoint came from, as far as it and the run folder around it tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from export.manifest import Origin
from train.checkpoint import Checkpoint
from train.errors import DataError
from train.evidence import read_metrics, without_places

SPLIT = {"rule", "seed", "fraction", "train", "validation", "test"}


def origin_of(checkpoint: Checkpoint, path: Path) -> Origin | None:
    """What is known of the training; `metrics.json` counts if it is of these very weights.

    None where the checkpoint does not tell how the rows were split.
    """
    if not set(checkpoint.split) >= SPLIT:
        return None
    origin = Origin(
        split=checkpoint.split,
        seed=checkpoint.seed,
        epoch=checkpoint.epoch,
        config=checkpoint.config,
    )
    try:
        metrics = read_metrics(path.parent)
    except DataError:
        return origin  # a checkpoint may have been copied alone, and the card says what is missing
    if metrics["scores"].get("fixed") != checkpoint.scores["test"]:
        return origin
    return replace(
        origin,
        command=without_places(metrics["command"]),
        scores=_at_the_bundle_s_thresholds(metrics["scores"]),
    )


def _at_the_bundle_s_thresholds(groups: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Other metrics of `tuned` are at thresholds of their own, which no bundle holds."""
    if "example_f1" not in groups["tuned"]:  # labels on words have no thresholds
        return {}
    return {
        "tuned": {"example_f1": groups["tuned"]["example_f1"]},
        "per_label": groups["per_label"],
    }
