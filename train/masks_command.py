"""`python -m train masks RUN...`: test images with their true masks and those of each run."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro
from matplotlib.figure import Figure
from rich.console import Console

from train.checkpoint import Checkpoint, load_checkpoint
from train.data import MultiLabelData, load_dataset
from train.errors import EXIT_OK, ConfigError
from train.report.masks import SHOWN_IMAGES, mask_grid
from train.run import RunFolder, write_bytes

DESCRIPTION = "Draw test images with their true masks and the masks of finished runs."
EXAMPLE = "example: python -m train masks runs/weizmann_horses/ce-0 runs/weizmann_horses/seal-0"


@dataclass(frozen=True, kw_only=True)
class MasksOptions:
    """What to draw."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
    """Run folders of finished runs on the same images."""
    images: int = SHOWN_IMAGES
    """Test images, the first ones."""
    out: Path | None = None
    """The PNG to write; unless told masks.png in the first run folder."""


def masks_command(console: Console, argv: Sequence[str]) -> int:
    """Read the runs, score the images, write the figure."""
    options = _parse(argv)
    if not options.runs or options.images < 1:
        raise ConfigError("name at least one run folder, and at least one of --images")
    checkpoints = [load_checkpoint(RunFolder(run).model) for run in options.runs]
    for run, checkpoint in zip(options.runs, checkpoints, strict=True):
        if checkpoint.task != "segmentation":
            raise ConfigError(f"{run} was not trained on images: its labels are no pixels")
    data, rows = _test_rows(options.runs[0], options.images)
    if {checkpoint.shape["n_labels"] for checkpoint in checkpoints} != {data.n_labels}:
        raise ConfigError("the runs are of images of different sizes: draw them one by one")
    named = {
        run.name: scores_of(checkpoint, data, rows)
        for run, checkpoint in zip(options.runs, checkpoints, strict=True)
    }
    out = options.out or options.runs[0] / "masks.png"
    try:
        write_bytes(out, _png(mask_grid(data, rows, named)))
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}; choose another --out") from error
    console.print(f"saved {out}", highlight=False, soft_wrap=True)
    return EXIT_OK


def _test_rows(run: Path, count: int) -> tuple[MultiLabelData, np.ndarray]:
    """The data set of a run, and the numbers of its first test rows."""
    folder = RunFolder(run)
    try:
        told: dict[str, Any] = json.loads(folder.metrics.read_text(encoding="utf-8"))["data"]
        with np.load(folder.split, allow_pickle=False) as split:
            rows = split["test"][:count]
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{run} is no folder of a finished run: train again") from error
    place = told.pop("data_dir")
    data = load_dataset(told.pop("dataset"), data_dir=Path(place) if place else None, **told)
    return data, rows


@torch.no_grad()
def scores_of(checkpoint: Checkpoint, data: MultiLabelData, rows: np.ndarray) -> np.ndarray:
    """Scores (rows, pixels) of some images."""
    assert isinstance(data.inputs, np.ndarray)  # noqa: S101 - images are
    logits: torch.Tensor = checkpoint.predictor()(torch.from_numpy(data.inputs[rows]))
    return logits.sigmoid().numpy()


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=120, metadata={"Software": None})
    return stream.getvalue()


def _parse(argv: Sequence[str]) -> MasksOptions:
    try:
        return tyro.cli(
            MasksOptions, prog="python -m train masks", description=DESCRIPTION, args=list(argv)
        )
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            Console().print(EXAMPLE, highlight=False)
        raise
