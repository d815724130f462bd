"""What the command line writes: results as CSV or JSON lines, and tables for people."""

from __future__ import annotations

import base64
import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from labelwright_client._errors import InvalidArgument
from labelwright_client._types import Mask, Prediction

FORMATS = ("csv", "jsonl")


@contextmanager
def opened(out: Path | None) -> Iterator[TextIO]:
    """The file to write to, or standard output."""
    if out is None:
        yield sys.stdout
        return
    try:
        file = out.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise InvalidArgument(f"cannot write {out}: {error.strerror}") from error
    with file:
        yield file


def format_of(out: Path | None, given: str | None) -> str:
    """The format asked for, else that of the file's ending, else CSV."""
    if given is not None or out is None:
        return given or "csv"
    ending = out.suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        raise InvalidArgument(f"--out {out}: expected a file that ends with .csv or .jsonl")
    return ending


def write_predictions(predictions: Iterable[Prediction], file: TextIO, form: str) -> None:
    """CSV has a line for each label (row, label, score), JSON lines one for each row."""
    if form == "csv":
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["row", "label", "score"])
        for row, prediction in enumerate(predictions):
            pairs = zip(prediction.labels, prediction.scores, strict=True)
            lines.writerows([row, label, score] for label, score in pairs)
        return
    for row, prediction in enumerate(predictions):
        _write_json({"row": row, "labels": prediction.labels, "scores": prediction.scores}, file)


def write_masks(masks: Iterable[Mask], file: TextIO, form: str) -> None:
    """One line a picture: its size and how much is covered; JSON lines have the mask too."""
    fields = ("height", "width", "coverage")
    if form == "csv":
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["row", *fields])
        lines.writerows([row, *_values(mask, fields)] for row, mask in enumerate(masks))
        return
    for row, mask in enumerate(masks):
        told = dict(zip(fields, _values(mask, fields), strict=True))
        _write_json({"row": row, **told, "mask": base64.b64encode(mask.png).decode()}, file)


def write_picture(mask: Mask, out: Path) -> None:
    """The mask as a black and white PNG."""
    try:
        out.write_bytes(mask.png)
    except OSError as error:
        raise InvalidArgument(f"cannot write {out}: {error.strerror}") from error


def _values(mask: Mask, fields: Sequence[str]) -> list[object]:
    return [getattr(mask, name) for name in fields]


def write_embeddings(vectors: Iterable[tuple[float, ...]], file: TextIO, form: str) -> None:
    """One line a row: CSV has a column for each number."""
    if form == "csv":
        lines = csv.writer(file, lineterminator="\n")
        for row, vector in enumerate(vectors):
            if row == 0:
                lines.writerow(["row", *range(len(vector))])
            lines.writerow([row, *vector])
        return
    for row, vector in enumerate(vectors):
        _write_json({"row": row, "embedding": vector}, file)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns of equal width, two spaces apart; None is a dash."""
    cells = [list(header), *([_shown(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "\n".join(lines)


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _write_json(value: object, file: TextIO) -> None:
    file.write(json.dumps(value, ensure_ascii=False) + "\n")
