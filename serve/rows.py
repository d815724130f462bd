"""The `inputs` of a request as arrays or texts, or one sentence about the row that is wrong.

The good path converts once: `array` takes numbers only, booleans apart, and is faster than numpy,
which would take strings too. Values are looked at one by one only to find the guilty row.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from serve.errors import InvalidInputError, TooLargeError
from serve.images import is_flat, parse_images
from serve.inputs import DenseRows, Rows, SparseRows, TextRows
from serve.kinds import kind_of
from serve.words import parse_words

Features = NDArray[np.float32]
FLOAT32_MAX = float(np.finfo(np.float32).max)
ALONE = 2**13
WIDEST_IN_FULL = 2**16
"""Wider rows are taken as objects only, by models that take sparse rows."""


def may_hold_booleans(body: bytes) -> bool:
    """Whether a JSON text may contain `true` or `false`, which `array` would turn into 1 and 0.

    Single bytes are found many times faster than words, and a usual body holds no `f` and only the
    one `u` of "inputs".
    """
    if b"f" in body and b"false" in body:
        return True
    return body.find(b"u", body.find(b"u") + 1) >= 0 and b"true" in body


@dataclass(frozen=True, slots=True)
class RowRules:
    """What the rows of one model must be."""

    kind: str
    """`features`, `sparse`, `text` or `words`, as in the manifest."""
    width: int
    """Numbers in a row; 0 for text and words."""
    max_rows: int
    """In one request; checked before anything of that size is allocated."""
    max_characters: int
    """In one text."""
    image: tuple[int, int] | None = None
    """Height and width of the images that rows are, if they are."""
    predicate: bool = False
    """Whether one of the words of a row is marked."""
    constrained: bool = False
    """Whether the labels of words keep the rules of spans."""


def parse_rows(inputs: object, rules: RowRules, *, with_booleans: bool) -> Rows:
    """Turn the rows of a request into what waits for the model.

    Args:
        inputs: The parsed JSON value, of any kind.
        rules: What the model takes.
        with_booleans: Booleans may be among the values, so their types must be looked at.

    Raises:
        InvalidInputError: Anything but rows of finite numbers of the right width, or texts.
        TooLargeError: More than `max_rows` rows.
    """
    if not isinstance(inputs, list):
        raise InvalidInputError(f'"inputs" must be a list of rows, got {kind_of(inputs)}')
    if not inputs:
        raise InvalidInputError('"inputs" must hold at least one row, got an empty list')
    if len(inputs) > rules.max_rows:
        raise TooLargeError(
            f"at most {rules.max_rows} rows fit into one request, got {len(inputs)}: "
            "send them in parts"
        )
    if rules.kind == "words":
        return parse_words(inputs, max_characters=rules.max_characters, predicate=rules.predicate)
    if rules.kind == "text":
        return _texts(inputs, rules.max_characters)
    if rules.image is not None and not is_flat(inputs[0]):
        return DenseRows(parse_images(inputs, *rules.image))
    return _numbers(inputs, rules, with_booleans=with_booleans)


def _numbers(inputs: list[Any], rules: RowRules, *, with_booleans: bool) -> Rows:
    first, width = inputs[0], rules.width
    if isinstance(first, dict):
        stored = _stored(inputs, width, with_booleans=with_booleans)
        return stored if rules.kind == "sparse" else DenseRows(scattered(stored, width))
    if not isinstance(first, list):
        raise _first_row_error(first, width)
    if rules.kind == "features":
        return DenseRows(_dense(inputs, width, with_booleans=with_booleans))
    if width > WIDEST_IN_FULL:
        raise InvalidInputError(
            "row 0 must be an object from column number to value, got a list: "
            f"rows of {width} numbers are not taken in full"
        )
    return _compressed(_dense(inputs, width, with_booleans=with_booleans))


def _texts(texts: list[Any], max_characters: int) -> TextRows:
    for index, text in enumerate(texts):
        if type(text) is not str:
            raise InvalidInputError(f"row {index} must be a text, got {kind_of(text)}")
        if len(text) > max_characters:
            raise InvalidInputError(
                f"row {index} has {len(text)} characters, at most {max_characters} are taken: "
                "shorten it"
            )
    return TextRows(texts)


def _first_row_error(first: object, width: int) -> InvalidInputError:
    if isinstance(first, str):
        return InvalidInputError(f"this model takes {width} numbers a row, got text in row 0")
    if type(first) in (int, float):
        return InvalidInputError(
            '"inputs" must be a list of rows, got one flat row: wrap it in a list'
        )
    return InvalidInputError(f"row 0 must be a list of {width} numbers, got {kind_of(first)}")


def _dense(rows: list[Any], width: int, *, with_booleans: bool) -> Features:
    numbers = array("f")
    is_suspect = with_booleans
    try:
        for row in rows:
            numbers.fromlist(row)
            is_suspect |= len(row) != width
    except (TypeError, OverflowError):
        is_suspect = True
    if is_suspect:
        for index, row in enumerate(rows):
            _check_dense_row(index, row, width)
    features = np.frombuffer(numbers, dtype=np.float32).reshape(len(rows), width)
    if not np.isfinite(features).all():
        raise infinite_row_error(int(np.argmin(np.isfinite(features).all(axis=1))))
    return features


def _check_dense_row(index: int, row: object, width: int) -> None:
    if not isinstance(row, list):
        raise _other_kind(index, row, "a list")
    _check_values(index, row)
    if len(row) != width:
        raise InvalidInputError(f"row {index} must have {width} numbers, got {len(row)}")


def _check_values(index: int, values: Iterable[object]) -> None:
    for value in values:
        if type(value) not in (float, int):
            raise InvalidInputError(f"row {index} must hold numbers only, got {kind_of(value)}")
        if isinstance(value, int) and abs(value) > FLOAT32_MAX:
            raise infinite_row_error(index)


def _stored(rows: list[Any], width: int, *, with_booleans: bool) -> SparseRows:
    numbers = array("f")
    is_suspect = with_booleans
    try:
        for row in rows:
            numbers.fromlist(list(row.values()))
    except (AttributeError, TypeError, OverflowError):
        is_suspect = True
    if is_suspect:
        for index, row in enumerate(rows):
            if not isinstance(row, dict):
                raise _other_kind(index, row, "an object")
            _check_values(index, row.values())
    counts = np.array([len(row) for row in rows], dtype=np.int64)
    stored = SparseRows(counts, _columns(rows, width), np.frombuffer(numbers, dtype=np.float32))
    check_stored(stored, width)
    return stored


def check_stored(stored: SparseRows, width: int) -> None:
    """Refuse numbers that are not finite, and columns given twice; columns lie within the width."""
    row_of_number = np.repeat(np.arange(len(stored)), stored.counts)
    if not np.isfinite(stored.values).all():
        raise infinite_row_error(int(row_of_number[np.argmin(np.isfinite(stored.values))]))
    # JSON keeps keys apart that are one number, such as "3" and "03".
    cells = np.sort(row_of_number * width + stored.columns)
    twice = np.flatnonzero(cells[1:] == cells[:-1])
    if twice.size:
        row, column = divmod(int(cells[twice[0]]), width)
        raise InvalidInputError(f"row {row} gives column {column} twice: keep one of them")


def scattered(stored: SparseRows, width: int) -> Features:
    """Stored values in their columns, (rows, width)."""
    features = np.zeros((len(stored), width), dtype=np.float32)
    features[np.repeat(np.arange(len(stored)), stored.counts), stored.columns] = stored.values
    return features


def _compressed(features: Features) -> SparseRows:
    """What is not zero in rows (rows, width)."""
    rows, columns = np.nonzero(features)
    counts = np.bincount(rows, minlength=len(features))
    return SparseRows(counts, columns, features[rows, columns])


def _columns(rows: list[dict[str, Any]], width: int) -> NDArray[np.int64]:
    names = "".join(chain.from_iterable(rows))
    try:
        # int() alone would also take "+3", " 3", "1_0" and digits of other scripts.
        if names and not (names.isascii() and names.isdigit()):
            raise ValueError
        columns = np.array(list(map(int, chain.from_iterable(rows))), dtype=np.int64)
    except (ValueError, OverflowError):
        columns = np.array([width])
    if columns.size and int(columns.max()) >= width:
        _refuse_columns(rows, width)
    return columns


def _refuse_columns(rows: list[dict[str, Any]], width: int) -> NoReturn:
    for index, row in enumerate(rows):
        for name in row:
            if not (name.isascii() and name.isdigit()):
                raise InvalidInputError(
                    f"row {index} must have whole column numbers as keys, got {name[:40]!r}"
                )
            if len(name) > 19 or int(name) >= width:  # 64-bit numbers have at most 19 digits
                raise InvalidInputError(
                    f"row {index} has column {name[:40]}, this model's columns are 0 to {width - 1}"
                )
    raise AssertionError("a column was refused that no rule refuses")


def _other_kind(index: int, row: object, first: str) -> InvalidInputError:
    return InvalidInputError(
        f"row {index} is {kind_of(row)} while row 0 is {first}: "
        "send all rows as lists or all as objects"
    )


def fits(features: Features, rules: RowRules) -> bool:
    """Whether finite rows (rows, any) are what a model takes, and nothing more need be checked."""
    rows, width = features.shape
    return width == rules.width and rows <= rules.max_rows and rules.kind == "features"


def rows_of_array(features: NDArray[Any], rules: RowRules) -> Rows:
    """Rows of an array (rows, any) as a JSON body could have held them, in float32.

    Raises:
        InvalidInputError: Another width, or a row that is not finite in float32.
        TooLargeError: More than `max_rows` rows.
    """
    width, max_rows = rules.width, rules.max_rows
    if features.shape[1] != width:
        raise InvalidInputError(f"row 0 must have {width} numbers, got {features.shape[1]}")
    if len(features) > max_rows:
        raise TooLargeError(
            f"at most {max_rows} rows fit into one request, got {len(features)}: send them in parts"
        )
    if features.dtype != np.float32:
        with np.errstate(over="ignore"):
            features = features.astype(np.float32)
    if not squares(features.reshape(-1)) < np.inf:
        finite = np.isfinite(features)
        if not finite.all():
            raise infinite_row_error(int(np.argmin(finite.all(axis=1))))
    return DenseRows(features) if rules.kind == "features" else _compressed(features)


def squares(flat: NDArray[Any]) -> float:
    """The sum of squares, not a number or infinite if a value is.

    Of all ways to see whether every value is finite this is the quickest; `vdot` does not warn of
    an overflow as `dot` does, and goes parallel, which costs many times more, from 10,000 values.
    """
    if len(flat) <= ALONE:
        return float(np.vdot(flat, flat))
    return sum(
        float(np.vdot(part, part))
        for part in (flat[start : start + ALONE] for start in range(0, len(flat), ALONE))
    )


def infinite_row_error(index: int) -> InvalidInputError:
    """The refusal of a row that float32 cannot hold."""
    return InvalidInputError(
        f"row {index} holds a number that is not finite in 32-bit floating point"
    )
