from __future__ import annotations

import gzip
import io

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from train.data import tokens
from train.data.formats import read_path
from train.data.xc import read_svmlight, read_xc, read_xc_parts
from train.errors import DataError


def write(folder, text, name="rows.txt"):
    path = folder / name
    path.write_bytes(text.encode())
    return path


def generated(n_rows=60, n_features=30, n_labels=9):
    rng = np.random.default_rng(3)
    x = np.where(rng.random((n_rows, n_features)) < 0.2, rng.normal(size=(n_rows, n_features)), 0)
    y = (rng.random((n_rows, n_labels)) < 0.3).astype(int)
    x[7], y[7] = 0, 0
    y[8] = 0
    file = io.BytesIO()
    dump_svmlight_file(x, y, file, zero_based=True, multilabel=True)
    return x, y, file.getvalue().decode()


@pytest.mark.parametrize("chunk", [1, 100, 1 << 19])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_xc_reads_what_scikit_learn_wrote(tmp_path, monkeypatch, chunk, newline):
    monkeypatch.setattr(tokens, "CHUNK", chunk)
    x, y, text = generated()
    data = read_xc(write(tmp_path, f"60 30 9\n{text}".replace("\n", newline)))
    np.testing.assert_array_equal(data.inputs.toarray(), x.astype(np.float32))
    np.testing.assert_array_equal(data.targets.toarray(), y)
    assert data.inputs.dtype == np.float32
    assert data.targets.dtype == np.uint8
    assert data.labels == tuple("012345678")


def test_svmlight_agrees_with_scikit_learn(tmp_path):
    _, _, text = generated()
    text = "".join(line + " # note\n" for line in text.splitlines() if line.strip())
    x, label_sets = load_svmlight_file(io.BytesIO(text.encode()), multilabel=True, zero_based=True)
    data = read_svmlight(write(tmp_path, text, "rows.svm"), zero_based=True)
    np.testing.assert_array_equal(data.inputs.toarray(), x.toarray().astype(np.float32))
    found = [[int(data.labels[c]) for c in row.nonzero()[0]] for row in data.targets.toarray()]
    assert found == [sorted(int(label) for label in labels) for labels in label_sets]


def test_small_forms(tmp_path):
    data = read_xc(write(tmp_path, "5 3 4\n0,3 2:1 0:0.5\n 1:2\n1:2\n\n2,2\n\n"))
    assert data.inputs.toarray().tolist() == [[0.5, 0, 1], [0, 2, 0], [0, 2, 0], [0] * 3, [0] * 3]
    assert data.targets.toarray().tolist() == [
        [1, 0, 0, 1],
        [0] * 4,
        [0] * 4,
        [0] * 4,
        [0, 0, 1, 0],
    ]
    assert data.inputs.has_sorted_indices


def test_packed_xc_is_read_directly(tmp_path):
    path = tmp_path / "rows.txt.gz"
    path.write_bytes(gzip.compress(b"1 2 2\n1 0:1.5\n"))
    assert read_path(path).inputs.toarray().tolist() == [[1.5, 0]]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 2\n0 1:1\n", "line 1: expected three numbers"),
        ("0,1 1:1\n", "line 1: expected three numbers"),
        ("0 2 2\n", "line 1: the file promises 0 rows"),
        ("3 2 2\n0 1:1\n1 1:1\n", "line 3: the first line promises 3 rows, got 2"),
        ("1 2 2\n0 1:1\n1 1:1\n", "line 3: the first line promises 1 rows, got 2"),
        ("2 2 2\n0 1:1\n0 2:1\n", "line 3: feature 2 is out of range: numbers here go 0 to 1"),
        ("2 2 2\n0 1:1\n2 1:1\n", "line 3: label 2 is out of range: numbers here go 0 to 1"),
        ("2 2 2\n0 1:1\n0 1:1 1:2\n", "line 3: feature 1 is given twice"),
        ("2 2 2\n0 1:1\n0 1:x\n", "line 3: expected a number, got 'x'"),
        ("2 2 2\n0 1:1\n0 1:inf\n", "line 3: expected a number, got 'inf'"),
        ("2 2 2\n0 1:1\na 1:1\n", "line 3: expected a whole number from 0, got 'a'"),
        ("2 2 2\n0 1:1\n-1 1:1\n", "line 3: expected a whole number from 0, got '-1'"),
        ("2 2 2\n0 1:1\n0 1:\n", "line 3: a row must read"),
        ("2 2 2\n0 1:1\n0 :1\n", "line 3: a row must read"),
        ("2 2 2\n0 1:1\n0 1::1\n", "line 3: a row must read"),
        ("2 2 2\n0 1:1\n0 1: 1\n", "line 3: a row must read"),
        ("2 2 2\n0 1:1\n0 0:1:1\n", "line 3: a row must read"),
        ("2 2 2\n0 1:1\n0 : 1:1\n", "line 3: a row must read .* stray ':'"),
        ("2 2 2\n0 1:1\n0, 1:1\n", "line 3: a row must read .* stray ','"),
        ("2 2 2\n0 1:1\n0 1 1:1\n", "line 3: a row must read .* '1' out of place"),
        ("2 2 2\n0 1:1\n1:1 0\n", "line 3: a row must read .* '0' out of place"),
        ("2 2 2\n0 1:1\n1:1,0\n", "line 3: a row must read .* '0' out of place"),
        ("2 2 2\n0 1:1\n0,1:1\n", "line 3: a row must read"),
        ("2 2 2\n0 1:1\n0,,1 1:1\n", "line 3: a row must read"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 1 << 19])
def test_mistakes_are_named_by_line(tmp_path, monkeypatch, text, sentence, chunk):
    monkeypatch.setattr(tokens, "CHUNK", chunk)
    with pytest.raises(DataError, match=sentence):
        read_xc(write(tmp_path, text))


def test_split_files_count_from_one(tmp_path):
    path = write(tmp_path, "3 2 2\n0 1:1\n1 1:1\n0 0:1\n")
    train, test = write(tmp_path, "3 1\n1 2\n", "tr.txt"), write(tmp_path, "2 3\n", "tst.txt")
    published = read_xc(path, train_split=train, test_split=test).published
    assert {part: rows.tolist() for part, rows in published.items()} == {
        "train": [0, 2],
        "test": [1],
    }
    with pytest.raises(DataError, match="both a train and a test"):
        read_xc(path, train_split=train)
    with pytest.raises(
        DataError, match=r"bad.txt, line 2: expected a row number of 1 to 3, got '4'"
    ):
        read_xc(path, train_split=train, test_split=write(tmp_path, "1\n4\n", "bad.txt"))


def test_a_folder_of_train_and_test_is_one_table(tmp_path):
    write(tmp_path, "2 2 2\n0 1:1\n1 1:1\n", "train.txt")
    test = write(tmp_path, "1 2 2\n0 0:1\n", "test.txt")
    data = read_path(tmp_path)
    assert data.name == tmp_path.name
    assert data.inputs.toarray().tolist() == [[0, 1], [0, 1], [1, 0]]
    assert data.published["test"].tolist() == [2]
    write(tmp_path, "1 3 2\n0 0:1\n", "test.txt")
    with pytest.raises(DataError, match="features"):
        read_xc_parts(tmp_path / "train.txt", test)


def test_svmlight_never_guesses_where_numbers_start(tmp_path):
    zero = write(tmp_path, "3 0:1\n7,3 2:1\n", "zero.svm")
    data = read_path(zero)
    assert (data.n_features, data.labels) == (3, ("3", "7"))
    with pytest.raises(
        DataError, match="line 1: feature 0 is out of range: numbers here go from 1"
    ):
        read_svmlight(zero, zero_based=False)
    one = write(tmp_path, "3 1:1\n7,3 2:1\n", "one.svm")
    with pytest.raises(DataError, match="give --zero-based False"):
        read_svmlight(one)
    assert read_svmlight(one, zero_based=False).inputs.toarray().tolist() == [[1, 0], [0, 1]]
    assert read_svmlight(one, zero_based=True).n_features == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no rows"),
        ("1 0:1\n\n1 1:1\n", "line 2: the line is blank"),
        ("1 0:1\n1 qid:3 1:1\n", "line 2: expected a whole number from 0, got 'qid'"),
        ("1 0:1\n1 1:1 1:1\n", "line 2: feature 1 is given twice"),
    ],
)
def test_svmlight_mistakes(tmp_path, text, sentence):
    with pytest.raises(DataError, match=sentence):
        read_svmlight(write(tmp_path, text, "rows.svm"))
