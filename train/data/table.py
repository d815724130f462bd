"""A user's own table: CSV, TSV, JSON lines or Parquet, with a header or keys.

Labels come in one of two forms: one column that holds a list, or one 0/1 column for each label.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import sparse

from train.data.assemble import named_labels
from train.data.dataset import MultiLabelData
from train.data.files import bare_stem
from train.data.matrices import targets_from_dense
from train.data.table_files import Table, read_columns
from train.errors import DataError, did_you_mean

LIST_COLUMN, TEXT_COLUMN, SPLIT_COLUMN = "labels", "text", "split"
LABEL_PREFIXES = ("label_", "label:")
SEPARATORS = ("|", ";", ",")
_PARTS = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
_ZERO_ONE = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


def read_table(
    path: Path,
    *,
    labels: str | Sequence[str] | None = None,
    text: str | None = None,
    label_separator: str | None = None,
    name: str | None = None,
) -> MultiLabelData:
    """Read a table by its ending: .csv, .tsv, .jsonl or .parquet.

    Args:
        path: The file, packed or not.
        labels: The column that holds each row's list, or 0/1 columns: their names as a list, or a
            pattern such as `label_*`, whose part before the star is not part of the label. Unless
            told: the column `labels`, or all columns that begin with `label_` or `label:`.
        text: The column that holds the text; all others are then ignored. Unless told: the column
            `text` if there is one, else every remaining column is a numeric feature.
        label_separator: What stands between the labels of a list written as one string; `|` unless
            told. Lists of JSON, in any of the formats, need none.
        name: Name of the data set; unless told, that of the file.

    A column `split` with train, validation and test fills in the published split.
    """
    table = read_columns(path)
    columns, is_list = _label_columns(table, labels)
    if is_list:
        label_names, targets = _from_lists(table, columns[0], label_separator)
    else:
        label_names, targets = _from_zero_one(table, columns, labels)
    published = _published(table, columns)
    rest = [
        c for c in table.columns if c not in columns and c != (SPLIT_COLUMN if published else "")
    ]
    text = text or (TEXT_COLUMN if TEXT_COLUMN in rest else None)
    features = () if text else tuple(rest)
    return MultiLabelData(
        name=name or bare_stem(path),
        inputs=_texts(table, text) if text else _numbers(table, rest),
        targets=targets,
        labels=label_names,
        features=features,
        published=published,
    )


def _label_columns(table: Table, labels: str | Sequence[str] | None) -> tuple[list[str], bool]:
    """The label columns, and whether it is one column of lists."""
    if labels is None:
        return _default_label_columns(table)
    if not isinstance(labels, str):
        return [_require_column(table, column) for column in labels], False
    if "*" not in labels:
        return [_require_column(table, labels)], True
    matching = fnmatch.filter(table.columns, labels)
    if not matching:
        raise DataError(f"{table.path} has no column like {labels!r}: {_listing(table)}")
    return matching, False


def _default_label_columns(table: Table) -> tuple[list[str], bool]:
    prefixed = [column for column in table.columns if column.startswith(LABEL_PREFIXES)]
    if LIST_COLUMN in table.columns and prefixed:
        raise DataError(
            f"{table.path} has a column {LIST_COLUMN!r} and columns such as {prefixed[0]!r}: say "
            "with --label-columns which hold the labels"
        )
    if LIST_COLUMN in table.columns:
        return [LIST_COLUMN], True
    if not prefixed:
        raise DataError(
            f"{table.path} has neither a column {LIST_COLUMN!r} nor columns that begin with "
            f"'label_': say with --label-columns which hold them; {_listing(table)}"
        )
    return prefixed, False


def _require_column(table: Table, column: str) -> str:
    if column not in table.columns:
        hint = did_you_mean(column, table.columns)
        raise DataError(f"{table.path} has no column {column!r}: {hint}")
    return column


def _listing(table: Table) -> str:
    names = [" ".join(name.split()) for name in table.columns]  # a quoted one may have lines
    return f"columns: {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}"


def _from_lists(
    table: Table, column: str, separator: str | None
) -> tuple[tuple[str, ...], sparse.csr_array]:
    cells = table.columns[column]
    if separator is None:
        separator = SEPARATORS[0]
        _check_separator(table, column)
    label_sets = [_cell_labels(table, column, row, separator) for row in range(len(cells))]
    return named_labels(label_sets)


def _check_separator(table: Table, column: str) -> None:
    """Refuse to take `a;b` for one label merely because nobody said that `;` separates."""
    words = [str(cell) for cell in table.columns[column] if _is_plain_string(cell)]
    used = [mark for mark in SEPARATORS if any(mark in word for word in words)]
    if used and used[0] != SEPARATORS[0]:
        raise DataError(
            f"{table.path}: column {column!r} holds {used[0]!r} and no '|': say "
            f"--label-separator {used[0]!r}, or --label-separator '|' if it is part of the labels"
        )


def _is_plain_string(cell: object) -> bool:
    return isinstance(cell, str) and not cell.lstrip().startswith("[")


def _cell_labels(table: Table, column: str, row: int, separator: str) -> list[str]:
    cell = table.columns[column][row]
    if cell is None:
        return []
    if isinstance(cell, str):
        if _is_plain_string(cell):
            return [word.strip() for word in cell.split(separator) if word.strip()]
        cell = _json_list(table, column, row, cell)
    if isinstance(cell, np.ndarray):
        cell = cell.tolist()
    if not isinstance(cell, list) or not all(type(item) in (str, int) for item in cell):
        raise table.error(
            row, f"column {column!r} must hold a list of labels, got {str(cell)[:60]!r}"
        )
    return [str(item) for item in cell]


def _json_list(table: Table, column: str, row: int, cell: str) -> object:
    try:
        return json.loads(cell)
    except json.JSONDecodeError as error:
        sentence = f"column {column!r} begins like a JSON list but is none ({error.msg})"
        raise table.error(row, f"{sentence}: {cell[:60]!r}") from error


def _from_zero_one(
    table: Table, columns: list[str], labels: str | Sequence[str] | None
) -> tuple[tuple[str, ...], sparse.csr_array]:
    dense = np.empty((table.n_rows, len(columns)), dtype=np.uint8)
    for number, column in enumerate(columns):
        for row, cell in enumerate(table.columns[column]):
            code = _ZERO_ONE.get(str(cell).strip().lower())
            if code is None:
                raise table.error(row, f"label column {column!r} must hold 0 or 1, got {cell!r}")
            dense[row, number] = code
    return tuple(_label_name(column, labels) for column in columns), targets_from_dense(dense)


def _label_name(column: str, labels: str | Sequence[str] | None) -> str:
    if labels is None:
        return column[len(LABEL_PREFIXES[0]) :]  # both prefixes are of one length
    if isinstance(labels, str):
        return column.removeprefix(labels.partition("*")[0])
    return column


def _published(table: Table, label_columns: list[str]) -> dict[str, np.ndarray]:
    if SPLIT_COLUMN not in table.columns or SPLIT_COLUMN in label_columns:
        return {}
    parts: dict[str, list[int]] = {}
    for row, cell in enumerate(table.columns[SPLIT_COLUMN]):
        part = _PARTS.get(str(cell).strip().lower())
        if part is None:
            raise table.error(
                row, f"column {SPLIT_COLUMN!r} must say train, validation or test, got {cell!r}"
            )
        parts.setdefault(part, []).append(row)
    return {part: np.array(parts[part]) for part in dict.fromkeys(_PARTS.values()) if part in parts}


def _texts(table: Table, column: str) -> list[str]:
    cells = table.columns[_require_column(table, column)]
    texts = []
    for row, cell in enumerate(cells):
        if not isinstance(cell, str):
            raise table.error(row, f"column {column!r} must hold text, got {cell!r}")
        texts.append(cell)
    return texts


def _numbers(table: Table, columns: list[str]) -> np.ndarray:
    if not columns:
        raise DataError(
            f"{table.path} has no column but labels: add a text column or numeric features"
        )
    return np.column_stack([_number_column(table, column) for column in columns])


def _number_column(table: Table, column: str) -> np.ndarray:
    cells = table.columns[column]
    try:
        values = np.array(cells, dtype=np.float64)
        if values.ndim == 1 and np.isfinite(values).all():
            return values.astype(np.float32)
    except (ValueError, TypeError):
        pass
    row = next(row for row, cell in enumerate(cells) if not _is_number(cell))
    raise table.error(
        row,
        f"column {column!r} must hold numbers, got {cells[row]!r}: fill it, drop the column, or "
        f"name it as text",
    )


def _is_number(cell: object) -> bool:
    try:
        return bool(np.isfinite(float(cell)))  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return False
