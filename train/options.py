"""Options of a run that are not hyper-parameters: data, seed, device, where to."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

REPORT_VARIABLE = "LABELWRIGHT_REPORT"


def reports_by_default() -> bool:
    """Whether commands write a report without being asked: unless the environment says `off`."""
    return os.environ.get(REPORT_VARIABLE) != "off"


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Where rows come from, and how they are cut into parts."""

    dataset: Annotated[str, tyro.conf.arg(metavar="NAME|FILE")]
    """Name of a known data set (`python -m train list datasets`), or a file of your own."""
    data_dir: Path | None = None
    """Folder with data sets, one folder each; searched before $LABELWRIGHT_DATA and the cache."""
    split: str = "auto"
    """`published`, shares such as 60/20/20 (stratified), or `auto`: what fits the data set."""
    split_seed: int = 0
    """Which of the equally good stratified splits."""
    label_columns: str | None = None
    """Tables only: the column with each row's list of labels, or 0/1 columns such as `label_*`."""
    label_separator: str | None = None
    """Tables only: what stands between the labels of a list; `|` unless told."""
    image_size: int | None = None
    """Folders of pictures only: every one is brought to so many pixels a side; 32 unless told."""
    zero_based: bool | None = None
    """svmlight only: whether features count from 0; needed where feature 0 never occurs."""

    def reader_options(self) -> dict[str, Any]:
        """What the reader of a user's own file is told."""
        options = {
            "labels": self.label_columns,
            "label_separator": self.label_separator,
            "zero_based": self.zero_based,
            "image_size": self.image_size,
        }
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class DataOptions(SourceOptions):
    """Which rows, and how many of them are for training."""

    fraction: float = 1.0
    """Share of the training rows to use; validation and test stay whole."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(DataOptions):
    """A training run."""

    preset: str = "auto"
    """Hyper-parameters: `auto` (the data set's own), `released`, `fast`, `best`, `none`, a file."""
    seed: int = 0
    """Of initialisation, batches, dropout and sampling."""
    device: str = "auto"
    """`cpu`, `cuda`, `cuda:N`, or `auto`: the GPU where there is one; of torchrun, each its own."""
    threads: int = 1
    """CPU threads. More help large networks on an idle machine, and hurt badly on a busy one."""
    out: Path | None = None
    """Run folder; unless told runs/DATASET/METHOD-SEED."""
    resume: bool = False
    """Go on with the interrupted run in the run folder."""
    overwrite: bool = False
    """Replace the run in the run folder."""
    report: bool = field(default_factory=reports_by_default)
    """Write report.html into the run folder: tables and plots, as `train report` makes them."""
    tensorboard: bool = False
    """Write losses and validation scores for TensorBoard into the folder `tensorboard` there."""
    progress: bool = True
    """Show progress."""
