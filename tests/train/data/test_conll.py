"""Columns of the CoNLL shared tasks, with predicates and without."""

from __future__ import annotations

import pytest

from train.data import load_dataset
from train.data.conll import read_conll
from train.errors import DataError

PLAIN = "The B-NP\njudge I-NP\nordered O\n\nGo O\n"
PREDICATES = """\
The     -      (A0*   (A1*
judge   -      *)     *)
ordered order  (V*)   *
leaving leave  (A1*)  (V*)

Oh      -
"""
BIO = PREDICATES.replace("(A0*   (A1*", "B-A0 B-A1").replace("*)     *)", "I-A0 I-A1")
BIO = BIO.replace("(V*)   *\n", "B-V O\n").replace("(A1*)  (V*)", "B-A1 B-V")


def written(tmp_path, text, name="x.conll"):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def test_two_columns_are_words_and_labels(tmp_path):
    data = read_conll(written(tmp_path, PLAIN))
    assert data.task == "tagging"
    assert data.labels == ("O", "B-NP", "I-NP")
    assert data.inputs == ["The judge ordered", "Go"]
    assert [row.tolist() for row in data.words.marks] == [[1, 2, 0], [0]]
    assert not data.words.has_predicates
    assert data.targets.toarray().tolist() == [[1, 1, 1], [1, 0, 0]]


@pytest.mark.parametrize("text", [PREDICATES, BIO])
def test_each_predicate_is_a_row(tmp_path, text):
    data = read_conll(written(tmp_path, text))
    assert data.labels == ("O", "B-A0", "B-A1", "B-V", "I-A0", "I-A1")
    assert data.inputs == ["The judge [ordered] leaving", "The judge ordered [leaving]"]
    names = [[data.labels[mark] for mark in row] for row in data.words.marks]
    assert names == [["B-A0", "I-A0", "B-V", "B-A1"], ["B-A1", "I-A1", "O", "B-V"]]


def test_a_folder_of_parts_is_a_published_split(tmp_path):
    for part in ("train", "test"):
        written(tmp_path, PLAIN, f"{part}.conll")
    data = load_dataset(str(tmp_path))
    assert {part: rows.tolist() for part, rows in data.published.items()} == {
        "train": [0, 1],
        "test": [2, 3],
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a B-X\nb\n", "has 1 columns, the line before 2"),
        ("a\nb\n", "without a second column"),
        ("a be (V*) *\n", "1 words are predicates and 2 columns follow"),
        ("a be (V\n", "is no bracket of a span"),
        ("a -\n", "has no rows"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        read_conll(written(tmp_path, text))
