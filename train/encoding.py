"""Texts to numbers on the host: words counted, or token numbers for an encoder.

Training and serving run this very code, so it needs numpy alone (and `tokenizers` where texts are
cut into tokens).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from train.errors import needs_extra

WORD = re.compile(r"\b\w\w+\b")
"""Two word characters at least, in any script."""
PADDING_TOKENS = ("[PAD]", "<pad>", "<|padding|>")
UNKNOWN = -1
WORDS_KIND, CHARACTERS_KIND = "tfidf", "tfidf of characters"
"""In JSON; two, so that what knows words alone does not read the other."""

Csr: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Where each row begins (rows + 1,) int64; column (stored,) int64 and value (stored,) float32."""


@dataclass(frozen=True, kw_only=True)
class TfidfEncoder:
    """Term weights (1 + ln count) * (1 + ln((1 + texts) / (1 + texts with the term))), rows unit.

    A term is a lower-case word, or two words in a row if there are bigrams; or, with `characters`,
    any run of so many at most, as it stands.
    """

    terms: tuple[str, ...]
    """In the order of the columns, sorted."""
    idf: np.ndarray
    """(terms,) float64."""
    characters: int = 0
    """The longest runs; 0: terms are words."""

    @classmethod
    def fit(
        cls,
        texts: Sequence[str],
        *,
        max_terms: int | None = None,
        min_texts: int = 2,
        bigrams: bool = False,
        characters: int = 0,
    ) -> TfidfEncoder:
        """Take the most frequent terms of those that at least `min_texts` texts have."""
        numbers = _NewWords()
        words, starts = _numbered(texts, numbers, characters)
        vocabulary = _Vocabulary(words=list(numbers), pairs=np.zeros(0, np.int64))
        rows = np.repeat(np.arange(len(texts)), np.diff(starts))
        occurrences = words
        if bigrams:
            first = _with_successor(words, starts)
            keys = words[first] * len(numbers) + words[first + 1]
            vocabulary.pairs, numbered = np.unique(keys, return_inverse=True)
            rows = np.concatenate([rows, rows[first]])
            occurrences = np.concatenate([words, len(numbers) + numbered])
        _, terms, counts = _counts(rows, occurrences, len(vocabulary))
        frequency = np.bincount(terms, minlength=len(vocabulary))
        total = np.bincount(terms, weights=counts, minlength=len(vocabulary))
        kept = np.flatnonzero(frequency >= min_texts)
        kept = np.array(sorted(kept, key=vocabulary.name), dtype=np.int64)
        if max_terms is not None and len(kept) > max_terms:
            most = np.argsort(-total[kept], kind="stable")[:max_terms]
            kept = kept[np.sort(most)]
        return cls(
            terms=tuple(vocabulary.name(number) for number in kept),
            idf=1 + np.log((1 + len(texts)) / (1 + frequency[kept])),
            characters=characters,
        )

    def encode(self, texts: Sequence[str]) -> Csr:
        """Rows as CSR, columns ascending; a text without a known term is an empty row."""
        words, starts = _numbered(texts, self._words, self.characters)
        texts_of = np.repeat(np.arange(len(texts)), np.diff(starts))
        rows, columns, counts = _counts(*self._terms(words, starts, texts_of), len(self.terms))
        values = (1 + np.log(counts)) * self.idf[columns]
        norms = np.sqrt(np.bincount(rows, weights=values**2, minlength=len(texts)))
        row_starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(texts)))])
        return row_starts.astype(np.int64), columns, (values / norms[rows]).astype(np.float32)

    def _terms(
        self, words: np.ndarray, starts: np.ndarray, texts_of: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Text and column of every occurrence of a known term."""
        columns = self._columns[words]
        rows = texts_of
        if len(self._pairs[0]):
            first = _with_successor(words, starts)
            keys = words[first] * len(self._words) + words[first + 1]
            keys[(words[first] == UNKNOWN) | (words[first + 1] == UNKNOWN)] = UNKNOWN
            sorted_keys, pair_columns = self._pairs
            place = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
            found = np.where(sorted_keys[place] == keys, pair_columns[place], UNKNOWN)
            rows, columns = (
                np.concatenate([rows, texts_of[first]]),
                np.concatenate([columns, found]),
            )
        known = columns != UNKNOWN
        return rows[known], columns[known]

    def to_json(self) -> str:
        """All of it as text."""
        content = {"kind": WORDS_KIND, "terms": self.terms, "idf": self.idf.tolist()}
        if self.characters:
            content |= {"kind": CHARACTERS_KIND, "characters": self.characters}
        return json.dumps(content, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> TfidfEncoder:
        """What `to_json` wrote; anything else is a ValueError."""
        content = json.loads(text)
        kind = content.get("kind") if isinstance(content, dict) else None
        if kind not in (WORDS_KIND, CHARACTERS_KIND):
            raise ValueError("these are no term weights")
        terms, idf = tuple(content["terms"]), np.array(content["idf"], dtype=np.float64)
        if idf.shape != (len(terms),) or not np.isfinite(idf).all():
            raise ValueError(f"there are {len(terms)} terms but weights of shape {idf.shape}")
        if kind == WORDS_KIND:
            return cls(terms=terms, idf=idf)
        # Runs longer than any term need not be looked for.
        longest = min(int(content["characters"]), max(map(len, terms), default=1))
        if longest < 1:
            raise ValueError(f"terms are runs of {longest} characters")
        return cls(terms=terms, idf=idf, characters=longest)

    @cached_property
    def _parts(self) -> list[list[str]]:
        """The one or two words of each term; a run of characters is one, spaces and all."""
        return [[term] if self.characters else term.split(" ") for term in self.terms]

    @cached_property
    def _words(self) -> dict[str, int]:
        """A number for each word that is in a term."""
        words = sorted({word for parts in self._parts for word in parts})
        return _KnownWords(zip(words, range(len(words)), strict=True))

    @cached_property
    def _columns(self) -> np.ndarray:
        """The column of each word; UNKNOWN for one that is in pairs alone, and for UNKNOWN."""
        columns = np.full(len(self._words) + 1, UNKNOWN, np.int64)  # the last is that of UNKNOWN
        for column, (first, *second) in enumerate(self._parts):
            if not second:
                columns[self._words[first]] = column
        return columns

    @cached_property
    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of words as numbers, ascending, and the column of each."""
        keyed = []
        for column, (first, *second) in enumerate(self._parts):
            if second:
                pair = self._words[first] * len(self._words) + self._words[second[0]]
                keyed.append((pair, column))
        keys, columns = np.array(sorted(keyed), dtype=np.int64).reshape(-1, 2).T
        return keys, columns


class _NewWords(dict[str, int]):
    """Gives each new word the next number."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


class _KnownWords(dict[str, int]):
    """Has one number for all words that it does not know."""

    def __missing__(self, word: str) -> int:
        return UNKNOWN


@dataclass
class _Vocabulary:
    """Words, and after them pairs of words as `first * words + second`."""

    words: list[str]
    pairs: np.ndarray

    def __len__(self) -> int:
        return len(self.words) + len(self.pairs)

    def name(self, number: np.intp) -> str:
        if number < len(self.words):
            return self.words[number]
        first, second = divmod(int(self.pairs[number - len(self.words)]), len(self.words))
        return f"{self.words[first]} {self.words[second]}"


def _numbered(
    texts: Sequence[str], numbers: dict[str, int], characters: int
) -> tuple[np.ndarray, np.ndarray]:
    """The words of all texts as numbers, one after the other, and where each text begins."""
    found: list[int] = []
    starts = [0]
    for text in texts:
        words = _runs(text, characters) if characters else WORD.findall(text.lower())
        found += [numbers[word] for word in words]
        starts.append(len(found))
    return np.array(found, dtype=np.int64), np.array(starts, dtype=np.int64)


def _runs(text: str, longest: int) -> Iterable[str]:
    """Every run of 1 to `longest` characters in a row."""
    for length in range(1, longest + 1):
        for start in range(len(text) - length + 1):
            yield text[start : start + length]


def _with_successor(words: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The places of all words that another follows in the same text."""
    is_last = np.zeros(len(words) + 1, bool)
    is_last[starts[1:] - 1] = True  # of an empty text it is that of the text before, or one past
    return np.flatnonzero(~is_last[: len(words)])


def _counts(
    rows: np.ndarray, columns: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How often each pair occurs; the pairs ascend by row, then by column."""
    keys, counts = np.unique(rows * max(width, 1) + columns, return_counts=True)
    return *np.divmod(keys, max(width, 1)), counts


class TokenEncoder:
    """Texts to token numbers, by a `tokenizer.json`; its own padding and truncation are ignored."""

    def __init__(self, tokenizer_json: str, max_tokens: int) -> None:
        with needs_extra("text", "cutting text into tokens"):
            from tokenizers import Tokenizer  # noqa: PLC0415 - may be missing
        self.tokenizer: Any = Tokenizer.from_str(tokenizer_json)
        self.padding = _padding(self.tokenizer)
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(max_tokens)

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """`input_ids` and `attention_mask`, (texts, longest) int64 each; the right is padded."""
        return padded(self.numbers(texts), self.padding)

    def numbers(self, texts: Sequence[str]) -> list[list[int]]:
        """Token numbers of each text."""
        encoded = self.tokenizer.encode_batch_fast([encodable(text) for text in texts])
        return [text.ids for text in encoded]


def padded(
    rows: Sequence[Sequence[int] | np.ndarray], padding: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of different lengths as one matrix, and where it holds one of them: 1, else 0."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    matrix = np.full(mask.shape, padding, dtype=np.int64)
    matrix[mask] = np.fromiter(_flat(rows), np.int64, lengths.sum())
    return matrix, mask.astype(np.int64)


def _flat(rows: Iterable[Iterable[int]]) -> Iterable[int]:
    return (value for row in rows for value in row)


def encodable(text: str) -> str:
    """Without lone surrogates, which JSON can spell and UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _padding(tokenizer: Any) -> int:  # noqa: ANN401 - `tokenizers` has no types
    """The number of the token that fills short rows; masked, so that only its place matters."""
    if tokenizer.padding is not None:
        return int(tokenizer.padding["pad_id"])
    known = (tokenizer.token_to_id(token) for token in PADDING_TOKENS)
    return next((number for number in known if number is not None), 0)
