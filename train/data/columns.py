"""Turn columns of words into feature columns: numbers, 0/1, one-hot; and fill what is missing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from train.data.arff_syntax import Attribute
from train.data.tokens import is_finite_number
from train.errors import DataError

MISSING = "?"
_TWO_VALUED = (("0", "1"), ("no", "yes"), ("false", "true"), ("n", "y"), ("f", "t"))
_MOST_VALUES = 20
"""A nominal attribute of more values than this, none of them twice, names the rows."""

Fail = Callable[[int, str], DataError]
"""Makes the error for a row number and a sentence; knows file and line."""


@dataclass(frozen=True)
class FeatureBlock:
    """The columns that one attribute becomes, (rows, names) float64; NaN where missing."""

    names: tuple[str, ...]
    values: np.ndarray
    is_nominal: bool


@functools.cache
def zero_one_codes(values: tuple[str, ...]) -> Mapping[str, int] | None:
    """What each value of a two-valued attribute such as {0,1} or {NO,YES} means; else None."""
    lowered = {value.lower() for value in values}
    for off, on in _TWO_VALUED:
        if lowered and lowered <= {off, on}:
            return {value: int(value.lower() == on) for value in values}
    return None


def encode_feature(
    attribute: Attribute, words: Sequence[str], fail: Fail, *, fold_two_valued: bool
) -> FeatureBlock:
    """One attribute as feature columns.

    Numeric attributes are one column. Nominal ones are one-hot over their declared values, except
    that {0,1}, {NO,YES} and their like are one 0/1 column if `fold_two_valued`, and that a nominal
    attribute of more than 20 values of which none occurs twice is taken for the name of the row:
    it becomes one column of zeros, so that published feature counts hold and nothing leaks.
    """
    if attribute.kind == "numeric":
        return FeatureBlock((attribute.name,), encode_numeric(attribute, words, fail), False)
    if len(attribute.values) > _MOST_VALUES and len(set(words)) == len(words):
        return FeatureBlock((attribute.name,), np.zeros((len(words), 1)), True)
    codes = zero_one_codes(attribute.values) if fold_two_valued else None
    if codes is not None:
        return FeatureBlock((attribute.name,), encode_nominal(attribute, words, codes, fail), True)
    codes = {value: code for code, value in enumerate(attribute.values)}
    column = encode_nominal(attribute, words, codes, fail)
    one_hot = np.where(np.isnan(column), np.nan, column == np.arange(len(codes)))
    names = tuple(f"{attribute.name}={value}" for value in attribute.values)
    return FeatureBlock(names, one_hot, True)


def encode_numeric(attribute: Attribute, words: Sequence[str], fail: Fail) -> np.ndarray:
    """Words as (rows, 1) numbers, NaN for `?`; anything else is an error."""
    known = [word if word != MISSING else "nan" for word in words]
    try:
        column = np.array(known, dtype=np.float64)
        is_good = bool((np.isfinite(column) | (np.array(words) == MISSING)).all())
    except ValueError:
        is_good = False
    if not is_good:
        row = next(i for i, w in enumerate(words) if w != MISSING and not is_finite_number(w))
        raise fail(row, f"attribute {attribute.name!r} must be a number or ?, got {words[row]!r}")
    return column[:, None]


def encode_nominal(
    attribute: Attribute, words: Sequence[str], codes: Mapping[str, int], fail: Fail
) -> np.ndarray:
    """Words as (rows, 1) codes, NaN for `?`; a value that was not declared is an error."""
    meaning: dict[str, float] = {MISSING: np.nan, **codes}
    try:
        column = np.array([meaning[word] for word in words])
    except KeyError:
        row = next(i for i, word in enumerate(words) if word not in meaning)
        raise fail(
            row,
            f"attribute {attribute.name!r} has no value {words[row][:60]!r}: declared are "
            f"{', '.join(attribute.values[:8])}{', ...' if len(attribute.values) > 8 else ''}",
        ) from None
    return column[:, None]


def fill_missing(block: FeatureBlock, reference: slice) -> np.ndarray:
    """Values of a block with its gaps filled from the reference rows.

    Numbers take the mean of the known values, nominal attributes the most frequent value (the first
    declared of several); an attribute that is missing in all reference rows takes zeros.
    """
    is_gap = np.isnan(block.values)
    if not is_gap.any():
        return block.values
    known = block.values[reference][~is_gap[reference].any(axis=1)]
    fill = known.mean(axis=0) if len(known) else np.zeros(block.values.shape[1])
    if block.is_nominal and len(known):
        fill = _most_frequent(fill)
    filled: np.ndarray = np.where(is_gap, fill, block.values)
    return filled


def _most_frequent(share: np.ndarray) -> np.ndarray:
    """One-hot of the largest share; a folded 0/1 column is 1 if more than half of it is."""
    if len(share) == 1:
        return (share > 0.5).astype(np.float64)
    one_hot: np.ndarray = np.eye(len(share))[share.argmax()]
    return one_hot
