"""Words cut into pieces: where each begins, which are marked, what is cut off."""

from __future__ import annotations

import pytest
from tiny_text import tiny_tokenizer

from train.word_pieces import WordEncoder, WordRow, split_words


def encoded(words: str, predicate: int | None = None, max_tokens: int = 32):
    encoder = WordEncoder(tiny_tokenizer().to_str(), max_tokens)
    return encoder.pieces([WordRow(words=tuple(words.split(" ")), predicate=predicate)])[0]


def test_a_word_is_where_its_first_piece_is():
    row = encoded("the abc is red", predicate=1)
    tokenizer = tiny_tokenizer()
    tokens = [tokenizer.id_to_token(int(number)) for number in row.ids]
    assert tokens == ["[CLS]", "the", "a", "##b", "##c", "is", "red", "[SEP]"]
    assert row.starts.tolist() == [2, 3, 6, 7]  # counted from 1
    assert row.marked.tolist() == [0, 0, 1, 1, 1, 0, 0, 0]


def test_words_beyond_the_most_tokens_are_cut_off():
    row = encoded("the abc is red", predicate=3, max_tokens=6)
    assert row.starts.tolist() == [2, 3]
    assert not row.marked.any()


@pytest.mark.parametrize(
    ("words", "starts"),
    [("the \u200b red", [2, 3, 3]), ("the \u200b", [2, 3]), ("\u200b", [2])],
)
def test_a_word_that_is_nothing_to_the_tokenizer_still_has_a_place(words, starts):
    row = encoded(words)
    assert row.starts.tolist() == starts
    assert row.starts.max() <= len(row.ids)


def test_a_feed_is_padded_with_zeros():
    encoder = WordEncoder(tiny_tokenizer().to_str(), 32)
    rows = [WordRow(words=("the", "abc"), predicate=1), WordRow(words=("red",), predicate=0)]
    feed = encoder.encode(rows)
    assert feed["word_pieces"].tolist() == [[2, 3], [2, 0]]
    assert feed["attention_mask"].sum(1).tolist() == [6, 3]
    assert feed["predicate_mask"].tolist() == [[0, 0, 1, 1, 1, 0], [0, 1, 0, 0, 0, 0]]


def test_a_row_goes_through_json_and_back():
    for row in (WordRow(words=("a", "b"), predicate=1), WordRow(words=("a",))):
        assert WordRow.from_values(row.values()) == row
    assert WordRow(words=("He", "ran"), predicate=1).text() == "He [ran]"


def test_texts_are_cut_into_words_and_signs():
    assert split_words("He didn't pay $5, did he?") == [
        "He", "didn't", "pay", "$", "5", ",", "did", "he", "?",
    ]  # fmt: skip
