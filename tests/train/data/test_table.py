from __future__ import annotations

import gzip
import json
import sys

import numpy as np
import pandas as pd
import pytest

from train.data.formats import read_path
from train.data.table import read_table
from train.errors import ConfigError, DataError


def write(folder, text, name="rows.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


FRAME = pd.DataFrame(
    {
        "age": [1.5, 2.0, -3.25],
        "size": [10, 20, 30],
        "label_red": [1, 0, 1],
        "label_blue": [0, 0, 1],
        "split": ["train", "val", "test"],
    }
)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet", "csv.gz"])
def test_formats_agree_with_the_frame_they_were_written_from(tmp_path, ending):
    path = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        FRAME.to_parquet(path)
    elif ending == "jsonl":
        FRAME.to_json(path, orient="records", lines=True)
    else:
        FRAME.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    data = read_path(path)
    np.testing.assert_array_equal(data.inputs, FRAME[["age", "size"]].to_numpy(np.float32))
    assert data.inputs.dtype == np.float32
    np.testing.assert_array_equal(data.targets.toarray(), FRAME[["label_red", "label_blue"]])
    assert (data.labels, data.features, data.name) == (("red", "blue"), ("age", "size"), "rows")
    parts = {part: rows.tolist() for part, rows in data.published.items()}
    assert parts == {"train": [0], "validation": [1], "test": [2]}


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_lists_of_labels_and_text(tmp_path, ending):
    lists = [["b", "a"], [], ["c"]]
    texts = ['say "hi",\nyou', "two", "drei ä"]
    path = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        pd.DataFrame({"text": texts, "labels": lists}).to_parquet(path)
    elif ending == "jsonl":
        rows = zip(texts, lists, strict=True)
        lines = [json.dumps({"text": text, "labels": labels}) for text, labels in rows]
        path.write_text("\n".join(lines), encoding="utf-8")
    else:
        cells = [json.dumps(labels) for labels in lists]
        pd.DataFrame({"id": "x", "text": texts, "labels": cells}).to_csv(path, index=False)
    data = read_path(path)
    assert data.inputs == texts
    assert data.kind == "text"
    assert data.labels == ("a", "b", "c")
    assert data.targets.toarray().tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]


def test_labels_as_one_string_and_other_column_names(tmp_path):
    text = "body,tags\nhello,a;b\nworld,\nmore, b ; c d\n"
    path = write(tmp_path, text)
    data = read_table(path, labels="tags", text="body", label_separator=";")
    assert data.labels == ("a", "b", "c d")
    assert data.targets.toarray().tolist() == [[1, 1, 0], [0, 0, 0], [0, 1, 1]]
    with pytest.raises(DataError, match="say --label-separator ';'"):
        read_table(path, labels="tags", text="body")
    whole = read_table(path, labels="tags", text="body", label_separator="|")
    assert whole.labels == ("a;b", "b ; c d")


def test_bar_separates_unless_told(tmp_path):
    data = read_table(write(tmp_path, "text,labels\nx,a|b\ny,a\n"))
    assert data.targets.toarray().tolist() == [[1, 1], [1, 0]]


@pytest.mark.parametrize(
    ("labels", "names"), [("y_*", ("p", "q")), (["y_q", "y_p"], ("y_q", "y_p"))]
)
def test_zero_one_columns_by_pattern_or_list(tmp_path, labels, names):
    path = write(tmp_path, "y_p,x,y_q\n1,0.5,0\n0,1.5,true\n")
    data = read_table(path, labels=labels)
    assert data.labels == names
    columns = [{"p": [1, 0], "q": [0, 1]}[name[-1]] for name in names]
    assert data.targets.toarray().T.tolist() == columns
    assert data.inputs.tolist() == [[0.5], [1.5]]


def test_cells_longer_than_the_csv_module_likes(tmp_path):
    long = "word " * 50_000
    data = read_table(write(tmp_path, f"text,labels\n{long},a\n"))
    assert data.inputs == [long]


def test_byte_order_mark_and_quoted_newlines_keep_line_numbers(tmp_path):
    path = write(tmp_path, '\ufefftext,label_a\n"one\ntwo",1\nthree,x\n')
    with pytest.raises(DataError, match="line 4: label column 'label_a' must hold 0 or 1, got 'x'"):
        read_table(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "line 1: expected the column names"),
        ("x,label_a\n", "has no rows"),
        ("x,label_a\n1,1\n1\n", "line 3: expected 2 cells, got 1"),
        ("x,x,label_a\n1,1,1\n", "line 1: the column 'x' is named twice"),
        ("x;label_a\n1;1\n", "line 1: columns are separated by ';'"),
        ("x,y\n1,1\n", "neither a column 'labels' nor columns that begin with 'label_'"),
        ("x,labels,label_a\n1,a,1\n", "say with --label-columns which hold the labels"),
        ("x,label_a\n1,1\n1,2\n", "line 3: label column 'label_a' must hold 0 or 1, got '2'"),
        ("x,label_a\n1,1\nred,1\n", "line 3: column 'x' must hold numbers, got 'red': fill it"),
        ("x,label_a\n1,1\n,1\n", "line 3: column 'x' must hold numbers, got ''"),
        ("x,label_a\n1,1\nnan,1\n", "line 3: column 'x' must hold numbers, got 'nan'"),
        ("label_a\n1\n", "no column but labels"),
        ('x,labels\n1,a\n1,"[""a"""\n', "line 3: column 'labels' begins like a JSON list"),
        ("x,labels\n1,a\n1,[[1]]\n", "line 3: column 'labels' must hold a list of labels"),
        ("x,label_a,split\n1,1,train\n1,1,later\n", "line 3: column 'split' must say"),
        ('x,label_a\n1,1\n"1,1\n', "line 3: unexpected end of data"),
    ],
)
def test_csv_mistakes_are_named_by_line(tmp_path, text, sentence):
    with pytest.raises(DataError, match=sentence):
        read_table(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"x": 1, "label_a": 1}\n{"x": 1\n', "line 2: not JSON"),
        ('{"x": 1, "label_a": 1}\n\n[1]\n', "line 3: expected an object"),
        (
            '{"x": 1, "label_a": 1}\n{"label_a": 1}\n',
            "line 2: column 'x' must hold numbers, got None",
        ),
        ('{"x": 1, "label_a": 1}\n{"x": 1}\n', "line 2: label column 'label_a' must hold 0 or 1"),
        (
            '{"text": "a", "labels": ["b"]}\n{"labels": []}\n',
            "line 2: column 'text' must hold text",
        ),
        ('{"x": 1, "labels": {"b": 1}}\n', "line 1: column 'labels' must hold a list"),
        ('{"x": 1, "labels": [1.5]}\n', "line 1: column 'labels' must hold a list"),
        ('{"x": [1], "labels": []}\n', "line 1: column 'x' must hold numbers"),
        ("", "has no rows"),
    ],
)
def test_jsonl_mistakes_are_named_by_line(tmp_path, text, sentence):
    with pytest.raises(DataError, match=sentence):
        read_table(write(tmp_path, text, "rows.jsonl"))


def test_names_that_are_not_there(tmp_path):
    path = write(tmp_path, "body,tags\nhello,a\n")
    with pytest.raises(DataError, match="no column 'tag': did you mean 'tags'"):
        read_table(path, labels="tag")
    with pytest.raises(DataError, match="no column 'bdy': did you mean 'body'"):
        read_table(path, labels="tags", text="bdy")
    with pytest.raises(DataError, match="no column like 'y_\\*': columns: body, tags"):
        read_table(path, labels="y_*")
    with pytest.raises(DataError, match="not a table"):
        read_table(tmp_path / "rows.xls")
    with pytest.raises(ConfigError, match="'zero_based'"):
        read_path(path, zero_based=True)


def test_parquet_without_pyarrow_and_damaged_parquet(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        read_table(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match="pip install pyarrow"):
        read_table(path)


def test_published_jsonl_text(real_data_dir):
    path = real_data_dir / "eurlex_sum_en" / "eurlex_sum_en.jsonl.xz"
    data = read_table(path, labels="subjects", text="summary")
    assert [len(data.published[part]) for part in ("train", "validation", "test")] == [
        1129,
        187,
        188,
    ]
    assert data.n_labels == 154
    assert data.mean_labels == pytest.approx(2.18, abs=0.0051)


def test_published_csv_of_zero_one_columns(real_data_dir):
    path = real_data_dir / "sider" / "sider.csv.gz"
    header = gzip.decompress(path.read_bytes()).decode().split("\n")[0]
    columns = next(iter(pd.read_csv(path, nrows=1, chunksize=1))).columns.tolist()
    assert header.startswith("smiles,")
    data = read_table(path, labels=columns[1:], text="smiles")
    assert (data.n_rows, data.n_labels) == (1427, 27)
    assert data.mean_labels == pytest.approx(15.32, abs=0.0051)
