"""Words to token numbers on the host, and back: where each word begins, which one is marked.

Training and serving run this very code, so it needs numpy and `tokenizers` alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from train.encoding import TokenEncoder, encodable, padded

WORD = re.compile(r"\w+(?:['\u2019-]\w+)*|[^\w\s]")
"""Letters and digits, with apostrophes and hyphens between them; or any other sign by itself."""


def split_words(text: str) -> list[str]:
    """The words of a text, and its signs."""
    return WORD.findall(text)


@dataclass(frozen=True, kw_only=True)
class WordRow:
    """Words in a row, one of which may be marked: the predicate whose arguments are wanted."""

    words: tuple[str, ...]
    predicate: int | None = None
    """Its place among the words, from 0."""

    def text(self) -> str:
        """The words with blanks between them, the predicate in brackets."""
        shown = list(self.words)
        if self.predicate is not None:
            shown[self.predicate] = f"[{shown[self.predicate]}]"
        return " ".join(shown)

    def values(self) -> dict[str, Any]:
        """As a request has it."""
        marked = {} if self.predicate is None else {"predicate": self.predicate}
        return {"tokens": list(self.words), **marked}

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> WordRow:
        """What `values` gave."""
        return cls(words=tuple(values["tokens"]), predicate=values.get("predicate"))


@dataclass(frozen=True, slots=True)
class Pieces:
    """The tokens of one row of words."""

    ids: np.ndarray  # (pieces,)
    marked: np.ndarray  # (pieces,): 1 for those of the predicate
    starts: np.ndarray  # (words,): the piece with which each word begins, counted from 1


class WordEncoder:
    """Rows of words to token numbers, by a `tokenizer.json`; words beyond `max_tokens` are cut."""

    def __init__(self, tokenizer_json: str, max_tokens: int) -> None:
        encoder = TokenEncoder(tokenizer_json, max_tokens)
        self.tokenizer, self.padding = encoder.tokenizer, encoder.padding

    def pieces(self, rows: Sequence[WordRow]) -> list[Pieces]:
        """The tokens of each row."""
        words = [[encodable(word) for word in row.words] for row in rows]
        # The faster call does not tell which word a piece is of.
        encoded = self.tokenizer.encode_batch(words, is_pretokenized=True)
        return [_pieces(found, row) for found, row in zip(encoded, rows, strict=True)]

    def encode(self, rows: Sequence[WordRow]) -> dict[str, np.ndarray]:
        """The inputs of a graph, see `word_feed`."""
        return word_feed(self.pieces(rows), self.padding)


def word_feed(rows: Sequence[Pieces], padding: int) -> dict[str, np.ndarray]:
    """Rows as matrices of int64, the right padded.

    input_ids, attention_mask, predicate_mask: (rows, most pieces); word_pieces: (rows, most words),
    the piece with which each word begins, counted from 1; 0 where there is no word.
    """
    ids, mask = padded([row.ids for row in rows], padding)
    marked, _ = padded([row.marked for row in rows], 0)
    starts, _ = padded([row.starts for row in rows], 0)
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "predicate_mask": marked,
        "word_pieces": starts,
    }


def _pieces(encoded: Any, row: WordRow) -> Pieces:  # noqa: ANN401 - `tokenizers` has no types
    word_of = np.array([-1 if word is None else word for word in encoded.word_ids], np.int64)
    # Truncation leaves out the last words; a word that is nothing to the tokenizer is still there.
    count = int(word_of.max(initial=-1)) + 1 if encoded.overflowing else len(row.words)
    first = np.full(count, len(word_of), np.int64)
    places = np.flatnonzero(word_of >= 0)
    np.minimum.at(first, word_of[places], places)
    # Such a word stands where the next one begins, or else at the last piece.
    starts = np.minimum.accumulate(first[::-1])[::-1].clip(max=len(word_of) - 1) + 1
    marked = word_of == row.predicate if row.predicate is not None else np.zeros(len(word_of), bool)
    return Pieces(np.array(encoded.ids, np.int32), marked.astype(np.int8), starts)
