from __future__ import annotations

import gzip
from pathlib import Path

import arff as liac
import numpy as np
import pytest

from train.data import tokens
from train.data.arff import read_meka, read_mulan
from train.data.formats import read_path
from train.errors import ConfigError, DataError

XML = '<labels xmlns="http://mulan.sourceforge.net/labels">{}</labels>'

SPARSE = """% a comment
@relation tiny

@attribute 'a b' numeric
@attribute flag {0,1}
@ATTRIBUTE y1 {0,1}
@attribute word {NO,YES}
@attribute y2 {0,1}
@data
{0 1.5,1 1,2 1}
% in between
{ 3 YES , 4 1 }

{}
{0 -2e-3,2 0}
"""


def write_pair(folder: Path, text: str, labels: list[str]) -> tuple[Path, Path]:
    arff_path, xml_path = folder / "tiny.arff", folder / "tiny.xml"
    arff_path.write_text(text, encoding="utf-8")
    names = "".join(f'<label name="{label}"></label>' for label in labels)
    xml_path.write_text(XML.format(names), encoding="utf-8")
    return arff_path, xml_path


def dense(header: str, *rows: str) -> str:
    return f"@relation r\n{header}\n@data\n" + "\n".join(rows) + "\n"


TWO = "@attribute x numeric\n@attribute y {0,1}"


def test_sparse_rows_stay_sparse_and_match_the_file(tmp_path):
    data = read_mulan(*write_pair(tmp_path, SPARSE, ["y2", "y1"]))
    assert data.name == "tiny"
    assert data.labels == ("y1", "y2")
    assert data.features == ("a b", "flag", "word")
    expected = np.array([[1.5, 1, 0], [0, 0, 1], [0, 0, 0], [-2e-3, 0, 0]], dtype=np.float32)
    np.testing.assert_array_equal(data.inputs.toarray(), expected)
    assert data.inputs.dtype == np.float32
    assert data.targets.toarray().tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]
    assert data.targets.dtype == np.uint8
    assert data.targets.nnz == 2


@pytest.mark.parametrize("chunk", [1, 40, 1 << 19])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_generated_sparse_file_equals_liac(tmp_path, monkeypatch, chunk, newline):
    monkeypatch.setattr(tokens, "CHUNK", chunk)
    rng = np.random.default_rng(0)
    rows = [
        {int(i): float(np.round(rng.normal(), 4)) for i in sorted(rng.choice(20, k, replace=False))}
        for k in rng.integers(0, 8, size=50)
    ]
    rows = [
        {**row, **{20 + int(j): 1 for j in np.flatnonzero(rng.random(5) < 0.3)}} for row in rows
    ]
    attributes = [(f"f{i}", "REAL") for i in range(20)] + [(f"y{j}", ["0", "1"]) for j in range(5)]
    content = {"relation": "r", "description": "", "attributes": attributes, "data": rows}
    text = liac.dumps(content).replace("\n", newline)
    path, xml_path = write_pair(tmp_path, "", [f"y{j}" for j in range(5)])
    path.write_bytes(text.encode())

    expected = np.zeros((50, 25))
    for row, entries in enumerate(liac.loads(text, return_type=liac.LOD)["data"]):
        for column, value in entries.items():
            expected[row, column] = float(value)
    data = read_mulan(path, xml_path)
    np.testing.assert_array_equal(data.inputs.toarray(), expected[:, :20].astype(np.float32))
    np.testing.assert_array_equal(data.targets.toarray(), expected[:, 20:])


def test_generated_dense_file_equals_liac(tmp_path):
    rng = np.random.default_rng(1)
    attributes = [
        ("number", "REAL"),
        ("colour", ["red", "light blue", "it's"]),
        ("flag", ["NO", "YES"]),
        ("y", ["0", "1"]),
    ]
    rows = [
        [
            float(rng.normal()),
            attributes[1][1][rng.integers(3)],
            ["NO", "YES"][rng.integers(2)],
            "1",
        ]
        for _ in range(30)
    ]
    text = liac.dumps({"relation": "r", "description": "", "attributes": attributes, "data": rows})
    data = read_mulan(*write_pair(tmp_path, text, ["y"]))
    expected = [
        [row[0], *(row[1] == value for value in attributes[1][1]), row[2] == "YES"]
        for row in liac.loads(text)["data"]
    ]
    np.testing.assert_array_equal(data.inputs, np.array(expected, dtype=np.float32))
    names = ("number", "colour=red", "colour=light blue", "colour=it's", "flag")
    assert data.features == names
    assert data.targets.toarray().tolist() == [[1]] * 30


def test_both_dense_paths_agree(tmp_path):
    rows = ["1.25,0", "-3e2,1", " 7 , 1"]
    plain = read_mulan(*write_pair(tmp_path, dense(TWO, *rows), ["y"]))
    quoted = read_mulan(*write_pair(tmp_path, dense(TWO, *rows[:2], "'7','1'"), ["y"]))
    np.testing.assert_array_equal(plain.inputs, quoted.inputs)
    assert plain.inputs.ravel().tolist() == [1.25, -300, 7]
    assert (plain.targets != quoted.targets).nnz == 0


def test_labels_are_found_however_escapes_are_spelled(tmp_path):
    header = "@attribute TAG_m\\'usica {0,1}\n@attribute TAG_musica {0,1}\n@attribute 'o\\'k' {0,1}"
    path, xml_path = write_pair(tmp_path, dense(header, "1,0,1"), ["TAG_m\\'usica", "o'k"])
    data = read_mulan(path, xml_path)
    assert data.labels == ("TAG_m\\'usica", "o'k")
    assert data.features == ("TAG_musica",)


def test_a_name_for_each_row_becomes_one_column_of_zeros(tmp_path):
    names = [f"p{i}" for i in range(25)]
    header = f"@attribute id {{{','.join(names)}}}\n{TWO}"
    rows = [f"{name},0.5,1" for name in names[:22]]
    data = read_mulan(*write_pair(tmp_path, dense(header, *rows), ["y"]))
    assert data.features == ("id", "x")
    assert not data.inputs[:, 0].any()

    repeated = read_mulan(*write_pair(tmp_path, dense(header, *rows, rows[0]), ["y"]))
    assert repeated.n_features == 26


def test_missing_values_take_the_mean_or_the_most_frequent(tmp_path):
    header = f"@attribute c {{a,b,c}}\n@attribute f {{no,yes}}\n@attribute gone numeric\n{TWO}"
    rows = ["b,yes,?,1,1", "b,yes,?,4,0", "?,?,?,?,1", "a,no,?,1,1"]
    data = read_mulan(*write_pair(tmp_path, dense(header, *rows), ["y"]))
    assert data.inputs[2].tolist() == [0, 1, 0, 1, 0, 2]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (["{0 1,1 1", "{0 1}"], "line 5: a sparse row must read"),
        (["{0 1}", "{0 1,1 1"], "line 6: a sparse row must read"),
        (["{0 1}", "{0 1,}"], "line 6: a sparse row must read"),
        (["{0 1}", "stray", "{0 1}"], "line 6: a sparse row must read"),
        (["{0 1 1}"], "line 5: a sparse row must read"),
        (["{0}"], "line 5: a sparse row must read"),
        (["{0 1}", "", "{1 1,2 1}"], "line 7: the index must be below 2 .* got 2"),
        (["{1 1,0 1}"], "line 5: indices must ascend"),
        (["{0 1}", "{0 1,0 1}"], "line 6: indices must ascend"),
        (["{0 1}", "{x 1}"], "line 6: expected a whole number from 0, got 'x'"),
        (["{0 1}", "{-1 1}"], "line 6: expected a whole number from 0, got '-1'"),
        (["{12345678901 1}"], "line 5: expected a whole number"),
        (["{0 1}", "{0 one}"], "line 6: expected a number, got 'one'"),
        (["{0 1}", "{0 ?}"], "line 6: expected a number"),
        (["{0 nan}"], "line 5: expected a number"),
        (["{0 1}", "{1 2}"], "line 6: attribute 'y' must be 0 or 1, got '2'"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 1 << 19])
def test_sparse_mistakes_are_named_by_line(tmp_path, monkeypatch, rows, sentence, chunk):
    monkeypatch.setattr(tokens, "CHUNK", chunk)
    with pytest.raises(DataError, match=sentence):
        read_mulan(*write_pair(tmp_path, dense(TWO, *rows), ["y"]))


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (["1,1", "2"], "line 6: expected 2 values.* got 1"),
        (["1,1", "", "% note", "2,1,1"], "line 8: expected 2 values.* got 3"),
        (["1,1", "two,1"], "line 6: attribute 'x' must be a number or \\?, got 'two'"),
        (["inf,1"], "line 5: attribute 'x' must be a number"),
        (["1,1", "1,2"], "line 6: attribute 'y' has no value '2': declared are 0, 1"),
        (["1,1", "1,?"], "line 6: label 'y' must be 0 or 1, got '\\?': a label cannot be missing"),
        ([], "no rows"),
    ],
)
def test_dense_mistakes_are_named_by_line(tmp_path, rows, sentence):
    with pytest.raises(DataError, match=sentence):
        read_mulan(*write_pair(tmp_path, dense(TWO, *rows), ["y"]))


@pytest.mark.parametrize(
    ("header", "row", "sentence"),
    [
        (f"@attribute s string\n{TWO}", "a,1,1", "line 2: attribute 's' must be numeric"),
        (f"@attribute s {{a,b\n{TWO}", "a,1,1", "line 2: attribute 's' must be numeric"),
        (f"nonsense\n{TWO}", "1,1", "line 2: expected @relation"),
        (
            "@attribute x numeric\n@attribute y {a,b}",
            "1,a",
            r"label .y. must be \{0,1\}, got \{a,b\}",
        ),
        ("@attribute x {1,0}\n@attribute y {0,1}", "{1 1}", "'x' of a sparse file must be"),
        ("@attribute x {a,b,c}\n@attribute y {0,1}", "{1 1}", "'x' of a sparse file must be"),
        (f"{TWO}\n@attribute y {{0,1}}", "1,1,1", "names a label twice"),
        ("@attribute x numeric", "1", "names the label 'y'"),
        ("", "1", "declares no @attribute"),
    ],
)
def test_header_mistakes(tmp_path, header, row, sentence):
    with pytest.raises(DataError, match=sentence):
        read_mulan(*write_pair(tmp_path, dense(header, row), ["y"]))


def test_file_without_data_line_and_bad_xml(tmp_path):
    path, xml_path = write_pair(tmp_path, "hello", ["y"])
    with pytest.raises(DataError, match="no @data line"):
        read_mulan(path, xml_path)
    path, xml_path = write_pair(tmp_path, dense(TWO, "1,1"), [])
    with pytest.raises(DataError, match="must name its labels"):
        read_mulan(path, xml_path)
    xml_path.write_text("<labels>\n<label", encoding="utf-8")
    with pytest.raises(DataError, match=r"tiny.xml, line 2: not well-formed"):
        read_mulan(path, xml_path)


@pytest.mark.parametrize(("count", "labels"), [(1, ("x",)), (-2, ("y", "z"))])
def test_meka_takes_the_first_or_the_last_attributes(tmp_path, count, labels):
    path = tmp_path / "m.arff"
    names = "".join(f"@attribute {name} {{0,1}}\n" for name in "xyz")
    path.write_text(f"@relation 'Music: -C {count} -S 7'\n{names}@data\n1,0,1\n", encoding="utf-8")
    data = read_meka(path)
    assert data.labels == labels
    assert data.targets.toarray()[0].tolist() == [{"x": 1, "y": 0, "z": 1}[name] for name in labels]
    assert read_path(path).labels == labels


@pytest.mark.parametrize(
    ("option", "sentence"), [("", "does not say"), ("-C 9", "between 1 and 2")]
)
def test_meka_mistakes(tmp_path, option, sentence):
    path = tmp_path / "m.arff"
    path.write_text(f"@relation 'm: {option}'\n{TWO}\n@data\n1,0\n", encoding="utf-8")
    with pytest.raises(DataError, match=sentence):
        read_meka(path)


def test_read_path_finds_the_xml_of_a_part_and_refuses_what_it_does_not_know(tmp_path):
    path, _ = write_pair(tmp_path, dense(TWO, "1,1"), ["y"])
    packed = tmp_path / "tiny-train.arff.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_path(packed, name="mine").name == "mine"
    with pytest.raises(ConfigError, match=r"'colour'.*knows name"):
        read_path(packed, colour="red")
    with pytest.raises(DataError, match=r"no known format.*\.arff, \.txt.*\.npz.*\.gz"):
        read_path(tmp_path / "rows.doc")
    alone = tmp_path / "alone.arff"
    alone.write_bytes(path.read_bytes())
    with pytest.raises(DataError, match=r"put alone\.xml"):
        read_path(alone)


@pytest.mark.parametrize(
    ("file", "rows", "features", "labels", "mean_labels"),
    [
        ("delicious/delicious-train.arff.gz", 12920, 500, 983, 19.05),
        ("delicious/delicious-test.arff", 3185, 500, 983, 18.91),
        ("delicious/delicious.arff.gz", 16105, 500, 983, 19.02),
        ("bibtex/bibtex.arff.gz", 7395, 1836, 159, 2.40),
        ("genbase/genbase.arff.gz", 662, 1186, 27, 1.25),
        ("genbase/genbase-train.arff", 463, 1186, 27, 1.26),
        ("genbase/genbase-test.arff", 199, 1186, 27, 1.23),
        ("cal500/cal500.arff", 502, 68, 174, 26.04),
        ("yeast/yeast.arff.gz", 2417, 103, 14, 4.24),
        ("scene/scene-train.arff.gz", 1211, 294, 6, 1.06),
        ("scene/scene-test.arff.gz", 1196, 294, 6, 1.09),
        ("reuters_k500/reuters-k500.arff", 6000, 500, 103, 1.46),
    ],
)
def test_published_counts(real_data_dir, file, rows, features, labels, mean_labels):
    data = read_path(real_data_dir / file)
    assert (data.n_rows, data.n_features, data.n_labels) == (rows, features, labels)
    assert data.mean_labels == pytest.approx(mean_labels, abs=0.0051)
    assert len(data.features) == features


@pytest.mark.parametrize(
    ("file", "label_columns"),
    [
        ("delicious/delicious-test.arff", range(500, 1483)),
        ("bibtex/bibtex-test.arff", range(1836, 1995)),
        ("reuters_k500/reuters-k500-test.arff", range(103)),
    ],
)
def test_published_sparse_files_equal_liac(real_data_dir, file, label_columns):
    content = liac.loads((real_data_dir / file).read_text(), return_type=liac.LOD)
    expected = np.zeros((len(content["data"]), len(content["attributes"])), dtype=np.float32)
    for row, entries in enumerate(content["data"]):
        expected[row, list(entries)] = [float(value) for value in entries.values()]
    data = read_path(real_data_dir / file)
    is_label = np.isin(np.arange(expected.shape[1]), label_columns)
    np.testing.assert_array_equal(data.inputs.toarray(), expected[:, ~is_label])
    np.testing.assert_array_equal(data.targets.toarray(), expected[:, is_label])


@pytest.mark.parametrize(
    ("file", "n_labels"),
    [("cal500/cal500.arff", 174), ("yeast/yeast-test.arff", 14), ("genbase/genbase-test.arff", 27)],
)
def test_published_dense_files_equal_liac(real_data_dir, file, n_labels):
    content = liac.loads((real_data_dir / file).read_text())
    meaning = {"NO": 0.0, "YES": 1.0}
    is_identifier = [name == "protein" for name, _ in content["attributes"]]
    expected = np.array(
        [
            [
                0.0 if hidden else meaning.get(value, value)
                for hidden, value in zip(is_identifier, row, strict=True)
            ]
            for row in content["data"]
        ],
        dtype=np.float64,
    ).astype(np.float32)
    data = read_path(real_data_dir / file)
    np.testing.assert_array_equal(data.inputs, expected[:, :-n_labels])
    np.testing.assert_array_equal(data.targets.toarray(), expected[:, -n_labels:])
    assert data.labels == tuple(name for name, _ in content["attributes"][-n_labels:])
