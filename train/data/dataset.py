"""What every reader returns and everything else consumes: a table of rows with label sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from scipy import sparse

from train.word_pieces import WordRow

Features: TypeAlias = np.ndarray | sparse.csr_array
Texts: TypeAlias = list[str]


Task: TypeAlias = Literal["multilabel", "segmentation", "tagging"]
"""What labels are: one by one, the pixels of a mask, or one of them on each word."""


@dataclass(frozen=True, kw_only=True)
class ImageShape:
    """Rows that are RGB images, and labels that are their pixels.

    A row holds red, green and blue, 0 to 255, of pixel after pixel, line after line; a label set is
    the mask, line after line. Networks are trained on crops of the images.
    """

    height: int
    width: int

    @property
    def crop(self) -> tuple[int, int]:
        """Height and width of a crop: three quarters, in whole fours for networks that halve."""
        return _three_quarters(self.height), _three_quarters(self.width)

    @property
    def crop_pixels(self) -> int:
        """Pixels of a crop."""
        height, width = self.crop
        return height * width


@dataclass(frozen=True, kw_only=True)
class MarkedWords:
    """Rows whose words each bear one label: `O`, `B-ROLE` or `I-ROLE`; label 0 is `O`."""

    rows: list[WordRow]
    marks: list[np.ndarray]
    """Label number of each word of each row."""

    @property
    def has_predicates(self) -> bool:
        """Whether every row has one; otherwise none has."""
        return bool(self.rows) and self.rows[0].predicate is not None


def _three_quarters(side: int) -> int:
    return max(4, side * 3 // 16 * 4)


@dataclass(frozen=True, kw_only=True)
class Split:
    """Row numbers of the three parts, each sorted; together a subset of all rows."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    rule: str
    """How the parts came about, e.g. 'published' or '60/20/20'; saved with the run."""

    def sizes(self) -> tuple[int, int, int]:
        """Rows in train, validation and test."""
        return len(self.train), len(self.validation), len(self.test)


@dataclass(frozen=True, kw_only=True)
class MultiLabelData:
    """Rows with label sets: `targets[i, j] == 1` where row i has label j.

    inputs: (rows, features) float32, dense, or CSR where the source is sparse; or one text a row.
    targets: (rows, labels) CSR of uint8, explicit zeros removed, column indices sorted.
    published: row numbers of each part as its authors published it ('train', 'test', perhaps
        'validation'); empty where no split was published.
    """

    name: str
    inputs: Features | Texts
    targets: sparse.csr_array
    labels: tuple[str, ...]
    features: tuple[str, ...] = ()
    published: dict[str, np.ndarray] = field(default_factory=dict)
    image: ImageShape | None = None
    """Of rows that are images; None for all others."""
    words: MarkedWords | None = None
    """Of rows whose words bear labels; `targets` then says which labels occur in a row."""

    @property
    def task(self) -> Task:
        """What is to be learned."""
        if self.words is not None:
            return "tagging"
        return "multilabel" if self.image is None else "segmentation"

    @property
    def kind(self) -> Literal["features", "text"]:
        """What a row is."""
        return "text" if isinstance(self.inputs, list) else "features"

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.targets.shape[0])

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.targets.shape[1])

    @property
    def n_features(self) -> int:
        """Number of feature columns; 0 for text."""
        return 0 if isinstance(self.inputs, list) else int(self.inputs.shape[1])

    @property
    def mean_labels(self) -> float:
        """Labels per row on average."""
        return float(self.targets.nnz / max(self.n_rows, 1))
