"""Encoders of texts against scikit-learn's and transformers' own."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from train.encoding import TfidfEncoder, TokenEncoder, padded

STRANGE = [
    "",
    "   ",
    "a b c",  # words of one letter are none
    "Grüße, ÉCOLE! don't e-mail foo_bar 3.14 2nd",
    "日本語 の テキスト и русский текст مرحبا بالعالم",
    "one two one two one two",
    "one\ttwo\nthree  \u00a0 four",
    "👩‍👩‍👧 family 🏳️‍🌈 flag",
    "İstanbul ΣΑΣ",  # lower-casing changes the number of characters
]


def drawn_texts(count: int, seed: int) -> list[str]:
    draw = np.random.default_rng(seed)
    words = [f"word{number}" for number in range(400)]
    return [
        " ".join(words[int(400 * draw.random() ** 3)] for _ in range(draw.integers(60)))
        for _ in range(count)
    ]


def as_matrix(encoder: TfidfEncoder, texts: list[str]) -> np.ndarray:
    starts, columns, values = encoder.encode(texts)
    assert (starts.dtype, columns.dtype, values.dtype) == (np.int64, np.int64, np.float32)
    shape = (len(texts), len(encoder.terms))
    return sparse.csr_array((values, columns, starts), shape=shape).toarray()


def reference(**options: object) -> TfidfVectorizer:
    return TfidfVectorizer(sublinear_tf=True, **options)


@pytest.mark.parametrize("bigrams", [False, True])
@pytest.mark.parametrize("min_texts", [1, 3])
def test_term_weights_are_those_of_scikit_learn(bigrams, min_texts):
    fitted_on = [*drawn_texts(200, 0), *STRANGE, *STRANGE[:5]]
    others = [*drawn_texts(50, 1), "unknown word1 unknown word1 word2", *STRANGE]
    encoder = TfidfEncoder.fit(fitted_on, min_texts=min_texts, bigrams=bigrams)
    theirs = reference(min_df=min_texts, ngram_range=(1, 1 + bigrams)).fit(fitted_on)
    assert list(encoder.terms) == list(theirs.get_feature_names_out())
    for texts in (fitted_on, others):
        expected = theirs.transform(texts).toarray()
        np.testing.assert_allclose(as_matrix(encoder, texts), expected, atol=1e-6)


@pytest.mark.parametrize("bigrams", [False, True])
def test_the_most_frequent_terms_are_those_of_scikit_learn(bigrams):
    texts = drawn_texts(300, 2)
    counts = {}
    for text in texts:
        words = text.split()
        for term in words + [" ".join(pair) for pair in pairwise(words)] * bigrams:
            counts[term] = counts.get(term, 0) + 1
    # Where the next term is as frequent as the last one kept, either is right.
    frequencies = sorted(counts.values(), reverse=True)
    limit = next(n for n in range(50, 200) if frequencies[n - 1] > frequencies[n])
    encoder = TfidfEncoder.fit(texts, max_terms=limit, min_texts=1, bigrams=bigrams)
    theirs = reference(max_features=limit, ngram_range=(1, 1 + bigrams)).fit(texts)
    assert list(encoder.terms) == list(theirs.get_feature_names_out())
    np.testing.assert_allclose(
        as_matrix(encoder, texts), theirs.transform(texts).toarray(), atol=1e-6
    )


@pytest.mark.parametrize("longest", [1, 3, 5])
@pytest.mark.parametrize("min_texts", [1, 3])
def test_weights_of_characters_are_those_of_scikit_learn(longest, min_texts):
    molecules = ["CC(=O)Nc1ccc(O)cc1", "c1ccccc1", "CCO", "O", "", "[Na+].[Cl-]", "今日は 良い天気"]
    fitted_on, others = [*molecules * 2, *drawn_texts(20, 4)], [*molecules, "ZzZ 天気 cC"]
    encoder = TfidfEncoder.fit(fitted_on, min_texts=min_texts, characters=longest)
    way = {"analyzer": "char", "ngram_range": (1, longest), "lowercase": False}
    theirs = reference(min_df=min_texts, **way).fit(fitted_on)
    assert list(encoder.terms) == list(theirs.get_feature_names_out())
    again = TfidfEncoder.from_json(encoder.to_json())
    for texts in (fitted_on, others):
        expected = theirs.transform(texts).toarray()
        np.testing.assert_allclose(as_matrix(encoder, texts), expected, atol=1e-6)
        assert np.array_equal(as_matrix(again, texts), as_matrix(encoder, texts))


def test_what_knows_words_alone_does_not_take_characters_for_them():
    kinds = [
        json.loads(TfidfEncoder.fit(["ab ab"], min_texts=1, characters=n).to_json())["kind"]
        for n in (0, 2)
    ]
    assert kinds[0] == "tfidf" != kinds[1]


def test_runs_longer_than_every_term_are_not_looked_for():
    encoder = TfidfEncoder(terms=("a", "ab"), idf=np.ones(2), characters=10**9)
    assert TfidfEncoder.from_json(encoder.to_json()).characters == 2


def test_of_equally_frequent_terms_the_first_in_the_alphabet_are_kept():
    assert TfidfEncoder.fit(["cc bb aa dd"], max_terms=2, min_texts=1).terms == ("aa", "bb")


@given(
    st.lists(st.text(max_size=40), max_size=6),
    st.sampled_from([{}, {"bigrams": True}, {"characters": 3}]),
)
def test_any_text_can_be_encoded(texts, way):
    encoder = TfidfEncoder.fit([*texts, "some words"], min_texts=1, **way)
    norms = np.linalg.norm(as_matrix(encoder, texts), axis=1)
    assert np.all(np.isclose(norms, 1, atol=1e-5) | (norms == 0))


def test_no_texts_give_no_rows():
    encoder = TfidfEncoder.fit(["some words"], min_texts=1)
    assert as_matrix(encoder, []).shape == (0, 2)
    assert TfidfEncoder.fit([]).terms == ()


def test_what_is_written_as_json_encodes_the_same():
    texts = drawn_texts(100, 3)
    encoder = TfidfEncoder.fit(texts, bigrams=True)
    again = TfidfEncoder.from_json(encoder.to_json())
    assert again.terms == encoder.terms
    assert np.array_equal(as_matrix(again, texts), as_matrix(encoder, texts))


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"kind": "other"}',
        '{"kind": "tfidf", "terms": ["a"], "idf": []}',
        '{"kind": "tfidf of characters", "terms": ["a"], "idf": [1], "characters": 0}',
    ],
)
def test_other_json_is_refused(content):
    with pytest.raises(ValueError, match="term"):
        TfidfEncoder.from_json(content)


def test_rows_are_padded_on_the_right():
    matrix, mask = padded([[5, 6], [], [7]], padding=9)
    assert matrix.tolist() == [[5, 6], [9, 9], [7, 9]]
    assert mask.tolist() == [[1, 1], [0, 0], [1, 0]]
    assert padded([], 0)[0].shape == (0, 0)


def transformers_tokenizer(files: dict[str, str], folder):
    transformers = pytest.importorskip("transformers")
    for name, content in files.items():
        (folder / name).write_text(content, "utf-8")
    return transformers.AutoTokenizer.from_pretrained(folder)


LONG = "a very long text " * 100


@pytest.mark.parametrize("max_tokens", [8, 64])
def test_tokens_are_those_of_transformers(tokenizer_json, max_tokens, tmp_path):
    config = json.dumps({"tokenizer_class": "BertTokenizerFast", "model_max_length": 512})
    files = {"tokenizer.json": tokenizer_json, "tokenizer_config.json": config}
    theirs = transformers_tokenizer(files, tmp_path)
    texts = [*STRANGE, LONG]
    expected = theirs(
        texts, padding=True, truncation=True, max_length=max_tokens, return_tensors="np"
    )
    ids, mask = TokenEncoder(tokenizer_json, max_tokens).encode(texts)
    assert ids.dtype == mask.dtype == np.int64
    assert np.array_equal(ids, expected["input_ids"])
    assert np.array_equal(mask, expected["attention_mask"])


def test_padding_and_truncation_of_the_file_are_ignored(tokenizer_json):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(tokenizer_json)
    tokenizer.enable_padding(length=40, pad_id=1)
    tokenizer.enable_truncation(4)
    encoder = TokenEncoder(tokenizer.to_str(), 20)
    ids, mask = encoder.encode([LONG, "a"])
    assert ids.shape == (2, 20)
    assert encoder.padding == 1
    assert (ids[1] == 1).sum() == 20 - mask[1].sum()


def test_half_a_character_does_not_stop_it(tokenizer_json):
    ids, _ = TokenEncoder(tokenizer_json, 8).encode(["broken \ud83d text"])
    assert ids.shape[0] == 1
