"""Cut a block of text into tokens with numpy, and turn the tokens into numbers in bulk."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train.errors import DataError

CHUNK = 1 << 19
SHORT = 2
"""Numbers of so few characters are worth trying as whole numbers first: mostly they are 1."""
MAX_DIGITS = 9
"""Whole numbers of more digits are refused: they would not fit the int32 of a sparse index."""


@dataclass(frozen=True)
class Block:
    """Lines of a file with one newline put before and after, so that each token has neighbours."""

    path: Path
    text: bytes
    first_line: int

    @classmethod
    def of(cls, path: Path, lines: bytes, first_line: int) -> Block:
        """Wrap the lines of a file that begin at line number `first_line`."""
        return cls(path, b"\n" + lines + b"\n", first_line)

    def chunks(self, row_start: bytes) -> Iterator[Block]:
        """Cut into blocks of about CHUNK bytes, each ending before a line that begins a row.

        Arrays over one such block stay in the processor's cache, which nearly doubles the speed.
        """
        position, line = 1, self.first_line
        while position < len(self.text):
            end = self.text.find(b"\n" + row_start, position + CHUNK)
            stop = end if end >= 0 else len(self.text) - 1
            yield Block(self.path, self.text[position - 1 : stop + 1], line)
            line += self.text.count(b"\n", position, stop + 1)
            position = stop + 1

    @property
    def chars(self) -> np.ndarray:
        """The text as an array of bytes."""
        return np.frombuffer(self.text, dtype=np.uint8)

    def line_at(self, position: int) -> int:
        """Line number in the file of a position in the text."""
        return self.first_line + self.text.count(b"\n", 0, position) - 1

    def error(self, position: int, sentence: str) -> DataError:
        """What is wrong at a position, with file and line number."""
        return DataError(f"{self.path}, line {self.line_at(int(position))}: {sentence}")


@dataclass(frozen=True)
class Tokens:
    """Runs of characters between separators: token i is `text[starts[i]:ends[i]]`."""

    block: Block
    starts: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, which: np.ndarray | slice) -> Tokens:
        """The tokens under a mask or slice."""
        return Tokens(self.block, self.starts[which].copy(), self.ends[which].copy())

    def word(self, index: int) -> str:
        """One token as text."""
        raw = self.block.text[self.starts[index] : self.ends[index]]
        return raw.decode("utf-8", errors="replace")

    def words(self) -> list[str]:
        """All tokens as text."""
        return [self.word(index) for index in range(len(self))]

    def error(self, index: int, sentence: str) -> DataError:
        """What is wrong with a token, with file and line number."""
        return self.block.error(self.starts[index], sentence)

    def integers(self) -> np.ndarray:
        """The tokens as int32; one that is not an unsigned whole number is an error."""
        values, is_bad = self._digits()
        if is_bad.any():
            guilty = int(np.flatnonzero(is_bad)[0])
            raise self.error(guilty, f"expected a whole number from 0, got {self.word(guilty)!r}")
        return values

    def numbers(self) -> np.ndarray:
        """The tokens as float64; one that is not a finite number is an error."""
        if (self.ends - self.starts).max(initial=0) <= SHORT:
            values, is_bad = self._digits()
            if not is_bad.any():
                return values.astype(np.float64)
        values = _parse_floats(self._alone())
        if len(values) != len(self) or not np.isfinite(values).all():
            guilty = next(i for i in range(len(self)) if not is_finite_number(self.word(i)))
            raise self.error(guilty, f"expected a number, got {self.word(guilty)!r}")
        return values

    def _digits(self) -> tuple[np.ndarray, np.ndarray]:
        """Values of the tokens read as digits, and which tokens are something else.

        One pass over all tokens for each decimal place: several times faster than one call a token.
        """
        lengths = self.ends - self.starts
        digits = self.block.chars - np.uint8(ord("0"))  # wraps: everything but 0..9 is above 9
        values = np.zeros(len(self), dtype=np.int32)
        is_bad = lengths > MAX_DIGITS
        for place in range(min(int(lengths.max(initial=0)), MAX_DIGITS)):
            digit = digits[self.ends - (1 + place)] * (lengths > place)
            is_bad |= digit > 9
            values += np.multiply(digit, np.int32(10**place), dtype=np.int32)
        return values, is_bad

    def _alone(self) -> bytes:
        """The text with everything but these tokens blanked."""
        change = np.zeros(len(self.block.text), dtype=np.int8)
        change[self.starts] = 1
        change[self.ends] = -1
        inside = np.cumsum(change, dtype=np.int8).astype(bool)
        return np.where(inside, self.block.chars, np.uint8(ord(" "))).tobytes()


def find_tokens(block: Block, separators: bytes) -> Tokens:
    """All tokens of a block; newline must be among the separators."""
    table = bytes(0 if code in separators else 1 for code in range(256))
    inside = np.frombuffer(block.text.translate(table), dtype=bool)
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    return Tokens(block, edges[0::2].copy(), edges[1::2].copy())


def is_finite_number(word: str) -> bool:
    """Whether a word is a number for a reader: no NaN, no infinity, no underscore, plain digits."""
    try:
        return word.isascii() and "_" not in word and bool(np.isfinite(float(word)))
    except ValueError:
        return False


def _parse_floats(text: bytes) -> np.ndarray:
    with warnings.catch_warnings():
        # numpy before 2.3 warns and returns what it could read; later ones raise ValueError.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.fromstring(text, dtype=np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            return np.empty(0)
