"""Masks beside their images: what runs make of pictures, as a person would look at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import sparse

from train.data import MultiLabelData
from train.data.dataset import ImageShape
from train.display import SHOWN_SET_METRICS
from train.imaging import WHITE
from train.report.drawing import INK, as_svg, page_style
from train.report.runs import FinishedRun
from train.scoring import mask_metrics
from train.thresholds import FIXED_THRESHOLD, MASK_METRICS, MPVAE_GRID

CELL_INCHES = 1.1
SHOWN_IMAGES = 8

Scores = NDArray[np.floating]


def mask_grid(
    data: MultiLabelData, rows: NDArray[np.integer], named: Mapping[str, Scores]
) -> Figure:
    """A column for each image; lines are the image, the truth and the scores named, at 0.5."""
    image = data.image
    assert image is not None  # noqa: S101 - masks are of images
    assert isinstance(data.inputs, np.ndarray)  # noqa: S101 - images are
    truth = data.targets[rows]
    shown = {"image": data.inputs[rows] / WHITE, "truth": truth.toarray().astype(float)}
    for name, scores in named.items():
        iou = mask_metrics(scores, truth, FIXED_THRESHOLD)["mean_iou"]
        shown[f"{name}\nIoU {iou:.3f}"] = (scores >= FIXED_THRESHOLD).astype(float)
    size = (CELL_INCHES * (len(rows) + 1), CELL_INCHES * len(shown))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(shown), len(rows), squeeze=False)
    for line, (name, values) in zip(grid, shown.items(), strict=True):
        line[0].set_ylabel(name, fontsize=8)
        for axes, row in zip(line, values, strict=True):
            axes.imshow(_grid(row, image), cmap="gray", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
    return figure


def _grid(row: NDArray[np.floating], image: ImageShape) -> NDArray[np.floating]:
    return row.reshape(image.height, image.width, -1).squeeze()


def masks_of_runs(runs: Sequence[FinishedRun]) -> str:
    """The first test images with the masks of every run that was tested on them."""
    first = runs[0]
    count = min(SHOWN_IMAGES, len(first.test_rows))
    named = {
        run.name: run.test_scores[:count]
        for run in runs
        if np.array_equal(run.test_rows, first.test_rows)
    }
    with page_style(), mpl.rc_context({"axes.grid": False}):
        return as_svg(mask_grid(first.data, first.test_rows[:count], named))


def mask_threshold_curves(run: FinishedRun) -> str:
    """Metrics of masks by threshold; the dot is where validation images tune it."""
    parts = {
        "validation images": (run.validation_scores, run.problem.validation.targets),
        "test images": (run.test_scores, run.true),
    }
    tuned = run.checkpoint.thresholds["tuned"]
    with page_style():
        figure = Figure(figsize=(9, 3.1), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (title, part) in zip(panels, parts.items(), strict=True):
            values = _by_threshold(*part, [*MPVAE_GRID, tuned])
            for name in MASK_METRICS:
                line = [value[name] for value in values]
                (drawn,) = axes.plot(MPVAE_GRID, line[:-1], label=SHOWN_SET_METRICS[name])
                axes.plot(tuned, line[-1], "o", color=drawn.get_color())
            axes.axvline(FIXED_THRESHOLD, color=INK, alpha=0.3, linewidth=1)
            axes.set(xlabel="threshold", title=title, xlim=(0, 1), ylim=(0, None))
        lines = panels[0].get_legend_handles_labels()
        figure.legend(*lines, loc="outside right upper", fontsize=9)
        return as_svg(figure)


def _by_threshold(
    scores: Scores, targets: sparse.csr_array, bounds: Sequence[float]
) -> list[dict[str, float]]:
    return [mask_metrics(scores, targets, bound) for bound in bounds]
