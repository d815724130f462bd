"""A data set made ready for training: split, scaled, on the device."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from scipy import sparse

from train import ranks
from train.batches import (
    GREATEST_DENSITY,
    DenseRows,
    Inputs,
    LabelRows,
    Rows,
    TokenRows,
    WordBatch,
    WordRows,
    to_rows,
)
from train.crops import corner_places, crop_rows, random_crops
from train.data import MultiLabelData, Split
from train.data.dataset import Features, ImageShape, Task
from train.errors import ConfigError, DataError
from train.imaging import WHITE


@dataclass(frozen=True, kw_only=True)
class EncoderShape:
    """A transformer that turns tokens into the vector of a text."""

    config: dict[str, Any]
    """Its sizes, as `transformers` writes them into config.json."""
    pooling: Literal["mean", "cls"]
    tuning: Literal["frozen", "adapter", "full"]
    adapter_size: int
    checkpointing: bool = False
    """Whether layers are computed twice in training, to save memory."""
    weights: dict[str, torch.Tensor] | None = field(default=None, repr=False, compare=False)
    """What its training begins with; None where trained weights follow, as in a checkpoint."""

    @property
    def width(self) -> int:
        """Of the vector of a text."""
        return int(self.config["dim" if "dim" in self.config else "hidden_size"])

    def values(self) -> dict[str, Any]:
        """Plain values, without what is for training alone."""
        return asdict(replace(self, weights=None, checkpointing=False))


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes from which a method builds its networks."""

    n_features: int
    """Of a row; of the vector of a text where an encoder is trained."""
    n_labels: int
    n_rows: int
    """Training rows."""
    encoder: EncoderShape | None = None
    """Of texts that come as tokens: networks begin with it."""
    image: ImageShape | None = None
    """Of rows that are images, whose labels are their pixels."""
    tagging: bool = False
    """Whether each word of a row bears one of the labels."""

    @property
    def task(self) -> Task:
        """What is to be learned."""
        if self.tagging:
            return "tagging"
        return "multilabel" if self.image is None else "segmentation"

    @property
    def n_trained_labels(self) -> int:
        """Labels of a row in a training step: of an image, the pixels of a crop; or of a word."""
        return self.n_labels if self.image is None else self.image.crop_pixels

    def values(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        values = {"n_features": self.n_features, "n_labels": self.n_labels, "n_rows": self.n_rows}
        encoder = {} if self.encoder is None else {"encoder": self.encoder.values()}
        image = {} if self.image is None else {"image": asdict(self.image)}
        return values | encoder | image | ({"tagging": True} if self.tagging else {})

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Shape:
        """What `values` gave."""
        encoder, image = values.get("encoder"), values.get("image")
        return cls(
            **{
                **values,
                "encoder": None if encoder is None else EncoderShape(**encoder),
                "image": None if image is None else ImageShape(**image),
            }
        )


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """`(x - mean) / scale`, fitted on the training rows; part of the exported graph."""

    mean: np.ndarray
    scale: np.ndarray

    def tensors(self) -> dict[str, torch.Tensor]:
        """Both as tensors, for a checkpoint."""
        return {"mean": torch.from_numpy(self.mean), "scale": torch.from_numpy(self.scale)}


@dataclass(frozen=True, kw_only=True)
class Marks:
    """The true labels of words."""

    labels: tuple[str, ...]
    rows: list[np.ndarray]
    """Label number of each word of each row."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """The rows of one part of a split."""

    x: Rows
    y: LabelRows
    targets: sparse.csr_array
    """`y` once more, on the host, for the metrics; where words bear labels, which ones occur."""
    marks: Marks | None = None
    """Where words bear labels: those of every word, also of such as are cut off."""

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """All that a method may look at."""

    shape: Shape
    train: Part
    validation: Part
    test: Part
    scaling: Scaling | None
    device: torch.device

    def views(self, x: Inputs, y: Any) -> tuple[Inputs, Any]:  # noqa: ANN401 - see `Method.step`
        """What a training step gets of a batch: crops drawn at random of images, else the batch.

        Of words, the labels of as many as the longest row has: (batch, words * labels).
        """
        if isinstance(x, WordBatch):
            return x, y[:, : x.word_pieces.shape[1] * self.shape.n_labels]
        if self.shape.image is None or not isinstance(x, torch.Tensor):
            return x, y
        return random_crops(x, y, self.shape.image)

    @cached_property
    def monitored(self) -> Part:
        """The validation rows as they are looked at after an epoch: images by their corners.

        A whole image is nine times the work: 36 crops in place of four.
        """
        image, whole = self.shape.image, self.validation
        if image is None:
            return whole
        every = torch.arange(len(whole), device=self.device)
        x, y = whole.x.take(every), whole.y.take(every)
        places = corner_places(image)
        cells = torch.cat([crop_rows(y, image, *place) for place in places])
        return Part(
            x=DenseRows(torch.cat([crop_rows(x, image, *place) for place in places])),
            y=DenseRows(cells),
            targets=sparse.csr_array(cells.cpu().numpy().astype(np.uint8)),
        )


@dataclass(frozen=True, kw_only=True)
class EncodedTexts:
    """The texts of a data set in the form in which a method takes them."""

    rows: Features | TokenRows
    """One a text: features, or tokens for an encoder that is trained."""
    saved: dict[str, Any]
    """What encodes texts in the same way later: `text` of a checkpoint."""
    encoder: EncoderShape | None = None
    """Of tokens."""


def feature_matrix(data: MultiLabelData) -> Features:
    """The inputs of a data set of feature vectors."""
    if isinstance(data.inputs, list):
        raise DataError(f"{data.name} holds text, and a table of numbers is needed here")
    return data.inputs


def check_parts(data: MultiLabelData, split: Split) -> None:
    """Refuse a split that has nothing to learn, choose or judge by."""
    for part in ("train", "validation", "test"):
        rows = getattr(split, part)
        missing = "rows" if len(rows) == 0 else "labels" if data.targets[rows].nnz == 0 else None
        if missing:
            raise DataError(
                f"{data.name} has no {missing} in its {part} part under --split {split.rule}: "
                "give more rows, or another --split"
            )


def make_problem(
    data: MultiLabelData,
    split: Split,
    device: torch.device,
    scaling: Literal["auto", "none", "standard"] = "auto",
    texts: EncodedTexts | None = None,
) -> Problem:
    """Scale the inputs by what the training rows say and put the three parts on the device."""
    check_parts(data, split)
    inputs = feature_matrix(data) if texts is None else texts.rows
    fitted = None
    if not isinstance(inputs, TokenRows):
        fitted = (
            _fit_scaling(inputs, split.train, scaling)
            if data.image is None or scaling == "none"
            else _brightness(inputs.shape[1])
        )
        if fitted is None and _density(inputs) <= GREATEST_DENSITY:
            inputs = sparse.csr_array(inputs)

    def part_of(rows: np.ndarray) -> Part:
        targets = data.targets[rows]
        if isinstance(inputs, WordRows) and data.words is not None:
            return _word_part(inputs.select(rows), data, rows)
        if isinstance(inputs, TokenRows):
            x: Rows = inputs.select(rows)
        elif fitted is not None:
            x = to_rows((inputs[rows] - fitted.mean) / fitted.scale, device)
        else:
            x = to_rows(inputs[rows], device)
        return Part(x=x, y=to_rows(targets, device), targets=targets)

    encoder = None if texts is None else texts.encoder
    return Problem(
        shape=Shape(
            n_features=_width(inputs) if encoder is None else encoder.width,
            n_labels=data.n_labels,
            n_rows=len(split.train),
            encoder=encoder,
            image=data.image,
            tagging=data.task == "tagging",
        ),
        train=part_of(split.train),
        validation=part_of(split.validation),
        test=part_of(split.test),
        scaling=fitted,
        device=device,
    )


def _word_part(x: WordRows, data: MultiLabelData, rows: np.ndarray) -> Part:
    """A part whose `y` says of each word that was not cut off which label it bears."""
    assert data.words is not None  # noqa: S101 - see `make_problem`
    marks = [data.words.marks[row] for row in rows]
    kept = [len(pieces.starts) for pieces in x.pieces]
    columns = [
        np.arange(count) * data.n_labels + row[:count]
        for count, row in zip(kept, marks, strict=True)
    ]
    starts = np.concatenate([[0], np.cumsum(kept)])
    flat = sparse.csr_array(
        (np.ones(starts[-1], np.uint8), np.concatenate(columns), starts),
        shape=(len(rows), max(kept) * data.n_labels),
    )
    return Part(
        x=x,
        y=to_rows(flat, x.device),
        targets=data.targets[rows],
        marks=Marks(labels=data.labels, rows=marks),
    )


def _width(inputs: Features | TokenRows) -> int:
    return inputs.width if isinstance(inputs, TokenRows) else int(inputs.shape[1])


def _density(inputs: Features) -> float:
    stored = np.count_nonzero(inputs) if isinstance(inputs, np.ndarray) else inputs.nnz
    return float(stored / max(1, inputs.shape[0] * inputs.shape[1]))


def _fit_scaling(inputs: Features, train_rows: np.ndarray, scaling: str) -> Scaling | None:
    if scaling == "none":
        return None
    if sparse.issparse(inputs):
        if scaling == "standard":
            raise ConfigError("--scaling standard would make sparse inputs dense: use none or auto")
        return None
    train = inputs[train_rows].astype(np.float64)
    if scaling == "auto" and np.isin(train, (0.0, 1.0)).all():
        return None
    deviation = train.std(axis=0)
    return Scaling(
        mean=train.mean(axis=0).astype(np.float32),
        # A constant column carries nothing; dividing by one keeps it at zero.
        scale=np.where(deviation > 0, deviation, 1.0).astype(np.float32),
    )


def _brightness(width: int) -> Scaling:
    """Of images: 0 to 255 becomes 0 to 1."""
    return Scaling(mean=np.zeros(width, np.float32), scale=np.full(width, WHITE, np.float32))


def resolve_device(name: str) -> torch.device:
    """Turn `--device` into a device that is really there; each rank has a GPU of its own."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if ranks.size() > 1 and name.startswith("cuda:"):
        raise ConfigError(
            f"--device {name}: each process takes a GPU of its own; use --device cuda"
        )
    if ranks.size() > 1 and name == "cuda":
        name = f"cuda:{ranks.local_rank()}"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"--device {name} is unknown: use auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"--device {name}: this machine has no usable CUDA GPU; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"--device {name}: there are only {torch.cuda.device_count()} GPUs here")
    return device
