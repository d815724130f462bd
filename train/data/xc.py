"""Sparse text rows `label,label index:value index:value`: the XC repository and svmlight.

Both are parsed in bulk and stay sparse. Row, feature and label numbers of XC files start at 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from train.data.assemble import stack_parts
from train.data.dataset import MultiLabelData
from train.data.files import bare_stem, read_bytes
from train.data.matrices import row_numbers, targets_at
from train.data.tokens import Block, Tokens, find_tokens
from train.errors import DataError

_HEADER = re.compile(rb"\s*(\d+)\s+(\d+)\s+(\d+)\s*")
_LONGEST_HEADER = 200
_COMMENT = re.compile(rb"#[^\n]*")
FREE_COUNT = {"features": 10_000_000, "labels": 1_000_000}
"""So many may be claimed by any file; more only by one that has a byte for each."""
_SHAPE = "a row must read label,label index:value index:value"


@dataclass(frozen=True)
class _Limits:
    """Numbers that may occur; None where the file itself sets the limit."""

    n_features: int | None = None
    n_labels: int | None = None
    lowest_feature: int = 0


@dataclass(frozen=True)
class _Rows:
    """Label numbers and features of all rows, as two CSR layouts."""

    label_indptr: np.ndarray
    labels: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray


def read_xc(
    path: Path,
    *,
    train_split: Path | None = None,
    test_split: Path | None = None,
    name: str | None = None,
) -> MultiLabelData:
    """Read an XC-repository file: a line `rows features labels`, then one line a row.

    A row may lack labels, features or both. The two split files hold row numbers from 1, one line a
    row; of several columns, each one split, the first is taken.
    """
    header, block = _read_with_header(path)
    n_rows, n_features, n_labels = header
    rows = _parse(block, _Limits(n_features, n_labels))
    if (train_split is None) != (test_split is None):
        raise DataError(f"{path} needs both a train and a test split file, or none")
    splits = {"train": train_split, "test": test_split}
    return MultiLabelData(
        name=name or bare_stem(path),
        inputs=_features(block, rows, n_features),
        targets=targets_at(row_numbers(rows.label_indptr), rows.labels, (n_rows, n_labels)),
        labels=tuple(str(number) for number in range(n_labels)),
        published={part: _read_split(p, n_rows) for part, p in splits.items() if p is not None},
    )


def read_xc_parts(train: Path, test: Path, *, name: str | None = None) -> MultiLabelData:
    """Read a published pair of XC files as one table, train rows first."""
    parts = {"train": read_xc(train), "test": read_xc(test)}
    return stack_parts(parts, name or train.absolute().parent.name)


def read_svmlight(
    path: Path, *, zero_based: bool | None = None, name: str | None = None
) -> MultiLabelData:
    """Read multi-label svmlight: no header, one line a row, `#` begins a comment.

    Labels are the numbers found, ascending, and keep their number as name. Feature numbers start at
    0 or at 1 by `zero_based`; unless told, a file that uses number 0 is taken for what it can only
    be, and any other is refused.
    """
    text = _COMMENT.sub(b"", read_bytes(path)).rstrip()
    block = Block.of(path, text, 1)
    if not text:
        raise DataError(f"{path} has no rows")
    first = 1 if zero_based is False else 0
    rows = _parse(block, _Limits(lowest_feature=first))
    is_blank = (np.diff(rows.label_indptr) == 0) & (np.diff(rows.indptr) == 0)
    if is_blank.any():
        raise _row_error(block, np.flatnonzero(is_blank)[0], "the line is blank: remove it")
    if zero_based is None and rows.indices.min(initial=1) > 0:
        raise DataError(
            f"{path} uses no feature number 0, so its numbers may start at 0 or at 1: "
            "give --zero-based False (usual for svmlight) or --zero-based True"
        )
    labels, columns = np.unique(rows.labels, return_inverse=True)
    n_features = int(rows.indices.max(initial=first - 1)) + 1 - first
    _check_size(path, "features", n_features, len(text))
    shape = (len(rows.indptr) - 1, len(labels))
    return MultiLabelData(
        name=name or bare_stem(path),
        inputs=_features(block, rows, n_features, first),
        targets=targets_at(row_numbers(rows.label_indptr), columns, shape),
        labels=tuple(str(label) for label in labels),
    )


def _read_with_header(path: Path) -> tuple[tuple[int, int, int], Block]:
    text = read_bytes(path)
    first, _, _ = text[:_LONGEST_HEADER].partition(b"\n")
    match = _HEADER.fullmatch(first)
    if match is None:
        raise DataError(
            f"{path}, line 1: expected three numbers, rows features labels, got "
            f"{first[:40].decode(errors='replace')!r}"
        )
    n_rows, n_features, n_labels = (int(number) for number in match.groups())
    _check_size(path, "features", n_features, len(text))
    _check_size(path, "labels", n_labels, len(text))
    if n_rows == 0:
        raise DataError(f"{path}, line 1: the file promises 0 rows: it has nothing to learn from")
    # From the newline before the first row on: a file of gigabytes is copied once, not by lines.
    text = text[len(first) :]
    text = text if text.endswith(b"\n") else text + b"\n"
    n_lines = text.count(b"\n") - 1
    if n_lines > n_rows:
        filled = text.rstrip()
        if (n_filled := filled.count(b"\n")) <= n_rows:  # blank lines at the end
            text, n_lines = filled + b"\n" * (n_rows - n_filled + 1), n_rows
    if n_lines != n_rows:
        line = min(n_lines, n_rows) + (2 if n_lines > n_rows else 1)
        raise DataError(
            f"{path}, line {line}: the first line promises {n_rows} rows, got {n_lines}"
        )
    return (n_rows, n_features, n_labels), Block(path, text, 2)


def _check_size(path: Path, what: str, count: int, n_bytes: int) -> None:
    """Refuse more labels or features than such a file can be about."""
    most = max(FREE_COUNT[what], n_bytes)
    if count > most:
        raise DataError(
            f"{path} claims {count} {what}, and {n_bytes} bytes can be about {most} at most: "
            "check its first line and its largest numbers"
        )


def _parse(block: Block, limits: _Limits) -> _Rows:
    chunks = [_parse_chunk(chunk, limits) for chunk in block.chunks(b"")]
    return _Rows(
        label_indptr=_joined_indptr([chunk.label_indptr for chunk in chunks]),
        labels=np.concatenate([chunk.labels for chunk in chunks]),
        indptr=_joined_indptr([chunk.indptr for chunk in chunks]),
        indices=np.concatenate([chunk.indices for chunk in chunks]),
        values=np.concatenate([chunk.values for chunk in chunks]),
    )


def _joined_indptr(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part) for part in parts]))])


def _parse_chunk(block: Block, limits: _Limits) -> _Rows:
    tokens = find_tokens(block, b" \t\r\n,:")
    newlines = np.flatnonzero(block.chars == ord("\n"))
    bounds = np.searchsorted(tokens.starts, newlines)  # tokens before the end of each row
    is_index, is_value = _check_pairs(block, tokens)
    is_label = ~(is_index | is_value)
    _check_labels(block, tokens, is_label, bounds)
    label_tokens, index_tokens = tokens.select(is_label), tokens.select(is_index)
    labels, indices = label_tokens.integers(), index_tokens.integers()
    _check_range(label_tokens, labels, 0, limits.n_labels)
    _check_range(index_tokens, indices, limits.lowest_feature, limits.n_features)
    return _Rows(
        label_indptr=np.concatenate([[0], np.cumsum(is_label)])[bounds],
        labels=labels,
        indptr=np.concatenate([[0], np.cumsum(is_index)])[bounds],
        indices=indices,
        values=tokens.select(is_value).numbers().astype(np.float32),
    )


def _check_pairs(block: Block, tokens: Tokens) -> tuple[np.ndarray, np.ndarray]:
    """Which tokens are the index and which the value of an `index:value`, all colons used once."""
    colon = ord(":")
    is_index = block.chars[tokens.ends] == colon
    is_value = block.chars[tokens.starts - 1] == colon
    is_good = ~is_index | (_touches_next(tokens) & ~is_value)
    is_good &= is_value == _shifted(is_index)
    is_good &= ~is_index | (block.chars[tokens.starts - 1] != ord(","))
    if not is_good.all():
        raise tokens.error(int(np.flatnonzero(~is_good)[0]), _SHAPE)
    _check_used(block, colon, tokens.ends[is_index])
    return is_index, is_value


def _check_labels(block: Block, tokens: Tokens, is_label: np.ndarray, bounds: np.ndarray) -> None:
    """Labels come first in their row, with one comma between two of them."""
    is_first = np.zeros(len(tokens) + 1, dtype=bool)
    is_first[bounds] = True
    follows = _shifted(_touches_next(tokens) & is_label)
    follows &= block.chars[tokens.starts - 1] == ord(",")
    bad = np.flatnonzero(is_label & ~is_first[:-1] & ~follows)
    if len(bad):
        raise tokens.error(int(bad[0]), f"{_SHAPE}, got {tokens.word(int(bad[0]))!r} out of place")
    _check_used(block, ord(","), tokens.starts[is_label & follows] - 1)


def _touches_next(tokens: Tokens) -> np.ndarray:
    """Whether a single character stands between a token and the next one."""
    touches = np.zeros(len(tokens), dtype=bool)
    touches[:-1] = tokens.starts[1:] - tokens.ends[:-1] == 1
    return touches


def _shifted(mask: np.ndarray) -> np.ndarray:
    """What holds for the token before."""
    shifted = np.zeros_like(mask)
    shifted[1:] = mask[:-1]
    return shifted


def _check_used(block: Block, char: int, used: np.ndarray) -> None:
    if block.text.count(char) != len(used):
        stray = np.setdiff1d(np.flatnonzero(block.chars == char), used)
        raise block.error(stray[0], f"{_SHAPE}, got a stray {chr(char)!r}")


def _check_range(tokens: Tokens, numbers: np.ndarray, lowest: int, limit: int | None) -> None:
    is_above = numbers >= (np.inf if limit is None else limit)
    bad = np.flatnonzero((numbers < lowest) | is_above)
    if len(bad):
        what = "feature" if tokens.block.text[tokens.ends[bad[0]]] == ord(":") else "label"
        allowed = f"from {lowest}" if limit is None else f"{lowest} to {limit - 1}"
        raise tokens.error(
            int(bad[0]), f"{what} {numbers[bad[0]]} is out of range: numbers here go {allowed}"
        )


def _features(block: Block, rows: _Rows, n_features: int, first: int = 0) -> sparse.csr_array:
    matrix = sparse.csr_array(
        (rows.values, rows.indices - np.int32(first), rows.indptr),
        shape=(len(rows.indptr) - 1, n_features),
    )
    matrix.sort_indices()
    numbers = row_numbers(matrix.indptr)
    is_repeated = (np.diff(matrix.indices) == 0) & (np.diff(numbers) == 0)
    if is_repeated.any():
        entry = int(np.flatnonzero(is_repeated)[0])
        sentence = f"feature {matrix.indices[entry] + first} is given twice"
        raise _row_error(block, numbers[entry], sentence)
    matrix.eliminate_zeros()
    return matrix


def _row_error(block: Block, row: int, sentence: str) -> DataError:
    return DataError(f"{block.path}, line {block.first_line + int(row)}: {sentence}")


def _read_split(path: Path, n_rows: int) -> np.ndarray:
    rows = []
    for number, line in enumerate(read_bytes(path).split(b"\n"), start=1):
        words = line.split(maxsplit=1)
        if not words:
            continue
        if not words[0].isdigit() or not 1 <= int(words[0]) <= n_rows:
            raise DataError(
                f"{path}, line {number}: expected a row number of 1 to {n_rows}, got "
                f"{words[0].decode(errors='replace')!r}"
            )
        rows.append(int(words[0]) - 1)
    return np.sort(np.array(rows, dtype=np.int64))
