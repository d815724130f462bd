"""Rows that are words, each of which bears one of the labels, and answers that are spans of them.

A row is {"tokens": ["She", "laughed"], "predicate": 1} or {"text": "She laughed", "predicate": 1}:
a text is cut by `split_words`, and the predicate is the place of a word, from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serve.errors import InvalidInputError
from serve.inputs import WordRows
from serve.kinds import kind_of
from train.decoding import constrained_marks
from train.spans import spans_of
from train.word_pieces import WordRow, split_words

FIELDS = ("tokens", "text", "predicate")


def parse_words(inputs: list[Any], *, max_characters: int, predicate: bool) -> WordRows:
    """Check rows.

    Raises:
        InvalidInputError: A row is not of one of the two forms, or its predicate is no word of it.
    """
    return WordRows(
        [_row(index, row, max_characters, predicate) for index, row in enumerate(inputs)]
    )


def _row(index: int, row: object, max_characters: int, predicate: bool) -> WordRow:
    if not isinstance(row, dict) or not row.keys() <= set(FIELDS):
        what = kind_of(row) if not isinstance(row, dict) else f"fields {', '.join(row)[:60]}"
        raise InvalidInputError(
            f'row {index} must be an object of "tokens" or "text"'
            f"{' and predicate' if predicate else ''}, got {what}"
        )
    words = _words(index, row, max_characters)
    place = row.get("predicate")
    if not predicate:
        if place is not None:
            raise InvalidInputError(f'row {index}: this model takes no "predicate": leave it out')
        return WordRow(words=words)
    if type(place) is not int or not 0 <= place < len(words):
        raise InvalidInputError(
            f'row {index}: "predicate" must be the place of a word, 0 to {len(words) - 1}'
        )
    return WordRow(words=words, predicate=place)


def _words(index: int, row: dict[str, Any], max_characters: int) -> tuple[str, ...]:
    tokens, text = row.get("tokens"), row.get("text")
    if (tokens is None) == (text is None):
        raise InvalidInputError(f'row {index} must have either "tokens" or "text"')
    if text is not None:
        if type(text) is not str:
            raise InvalidInputError(f'row {index}: "text" must be a text, got {kind_of(text)}')
        length, tokens = len(text), split_words(text[:max_characters])
    elif not isinstance(tokens, list) or not all(type(word) is str for word in tokens):
        raise InvalidInputError(f'row {index}: "tokens" must be a list of words')
    else:
        length = sum(map(len, tokens)) + len(tokens)
    if length > max_characters:
        raise InvalidInputError(
            f"row {index} has {length} characters, at most {max_characters} are taken: shorten it"
        )
    if not tokens or not all(word.strip() for word in tokens):
        raise InvalidInputError(f"row {index} must have words, and no empty one among them")
    return tuple(tokens)


def constrained_words(
    rows: Sequence[WordRow], scores: NDArray[np.float32], labels: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The labels of each word under the rules of spans, and their scores: (rows, most words) each.

    scores: (rows, most words * labels), those of the first word first.
    """
    by_word = scores.reshape(len(rows), -1, len(labels))
    columns = np.zeros(by_word.shape[:2], np.int64)
    for row, of_words, found in zip(rows, by_word, columns, strict=True):
        seen = of_words[: len(row.words)]
        found[: len(seen)] = constrained_marks(seen, labels)
    return columns, np.take_along_axis(by_word, columns[..., None], 2)[..., 0]


def span_answers(
    rows: Sequence[WordRow],
    best_labels: NDArray[np.int64],
    best_scores: NDArray[np.float32],
    labels: Sequence[str],
    threshold: float,
) -> Iterator[dict[str, Any]]:
    """The spans of each row that reach the threshold; a span is as good as its worst word.

    best_labels, best_scores: (rows, most words); beyond the words that a graph saw of a row, every
    score is 0 and the label `O`.
    """
    for row, columns, scores in zip(rows, best_labels, best_scores, strict=True):
        seen = min(len(row.words), len(columns))
        spans = []
        for role, start, end in spans_of([labels[column] for column in columns[:seen].tolist()]):
            score = float(scores[start : end + 1].min())
            if score >= threshold:
                words = row.words[start : end + 1]
                spans.append(
                    {"role": role, "start": start, "end": end, "words": words, "score": score}
                )
        yield {"spans": spans}
