"""Readers of single known data sets, on tiny files of the same form."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import io as matlab
from scipy import sparse

from train.data.arxiv import read_arxiv
from train.data.emotions import read_emotions
from train.data.lines import read_lines
from train.data.mat import read_mat
from train.data.pairs import read_pairs
from train.data.registry import find_info
from train.data.sgml import read_reuters
from train.data.sources import read_known
from train.errors import DataError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def label_names(data, row: int) -> set[str]:
    return {data.labels[column] for column in data.targets[[row]].indices}


# --- Reuters-21578


def item(part: str, topics: str, text: str, has_topics: str = "YES") -> str:
    marked = "".join(f"<D>{topic}</D>" for topic in topics.split())
    return (
        f'<REUTERS TOPICS="{has_topics}" LEWISSPLIT="{part}" CGISPLIT="X" OLDID="1" NEWID="2">\n'
        f"<TOPICS>{marked}</TOPICS>\n<PLACES><D>usa</D></PLACES>\n{text}\n</REUTERS>\n"
    )


def normal(title: str, body: str) -> str:
    dateline = "<DATELINE> ROME, May 1 - </DATELINE>"
    return f"<TEXT>&#2;\n<TITLE>{title}</TITLE>\n{dateline}<BODY>{body}\n&#3;</BODY></TEXT>"


def test_reuters_keeps_shared_topics_of_the_modapte_split(tmp_path: Path):
    first = write(
        tmp_path / "a.sgm",
        "<!DOCTYPE lewis>\n"
        + item("TRAIN", "corn wheat", normal("MAIZE &lt;XYZ>", "A & B &amp; C"))
        + item("TRAIN", "tin", normal("ONLY IN TRAIN", "x"))
        + item("TRAIN", "", normal("NO TOPIC", "x"))
        + item("TRAIN", "corn", normal("SKIPPED", "x"), has_topics="NO")
        + item("NOT-USED", "corn", normal("UNUSED", "x")),
    )
    second = tmp_path / "b.sgm.gz"
    second.write_bytes(
        gzip.compress(
            (
                item("TEST", "corn gold", normal("FL\xd6UR\x07", "b"))
                + item("TEST", "wheat", '<TEXT TYPE="UNPROC">&#2;\n RAW TEXT \n&#3;</TEXT>')
                + item("TRAIN", "corn", '<TEXT TYPE="BRIEF">\n<TITLE>BRIEF</TITLE></TEXT>')
            ).encode("latin-1")
        )
    )
    data = read_reuters([first, second])
    assert data.labels == ("corn", "wheat")
    assert data.inputs == [
        "MAIZE <XYZ>\nA & B & C",
        "BRIEF",
        "FL\xd6UR\nb",
        "RAW TEXT",
    ]
    assert data.targets.toarray().tolist() == [[1, 1], [1, 0], [1, 0], [0, 1]]
    assert {part: rows.tolist() for part, rows in data.published.items()} == {
        "train": [0, 1],
        "test": [2, 3],
    }


@pytest.mark.parametrize("content", ["", "plain text", item("TRAIN", "corn", "x")[:-12]])
def test_a_file_that_is_not_whole_sgml_is_named(tmp_path: Path, content: str):
    path = write(tmp_path / "a.sgm", content)
    with pytest.raises(DataError, match=f"{path} is not a whole Reuters-21578 file"):
        read_reuters([path])


def test_reuters_without_a_test_part_is_an_error(tmp_path: Path):
    path = write(tmp_path / "a.sgm", item("TRAIN", "corn", normal("a", "b")))
    with pytest.raises(DataError, match=r"all of reut2-000\.sgm to reut2-021\.sgm are needed"):
        read_reuters([path])


# --- texts and labels in two files


def test_lines_of_two_files_belong_together(tmp_path: Path):
    parts = {
        "train": (
            write(tmp_path / "tt", "one\ntwo\n"),
            write(tmp_path / "tl", "cs.IT math.IT\ncs.DL\n"),
        ),
        "test": (write(tmp_path / "st", "three"), write(tmp_path / "sl", "cs.DL cs.IT\n")),
    }
    data = read_lines(parts, name="x")
    assert data.inputs == ["one", "two", "three"]
    assert data.labels == ("cs.DL", "cs.IT", "math.IT")
    assert data.targets.toarray().tolist() == [[0, 1, 1], [1, 0, 0], [1, 1, 0]]
    assert data.published["test"].tolist() == [2]


def test_unequal_numbers_of_lines_are_an_error(tmp_path: Path):
    parts = {"train": (write(tmp_path / "t", "one\ntwo\n"), write(tmp_path / "l", "a\n"))}
    with pytest.raises(DataError, match=r"t has 2 lines and .*l has 1"):
        read_lines(parts, name="x")


def test_an_empty_text_is_named_by_its_line(tmp_path: Path):
    parts = {"train": (write(tmp_path / "t", "one\n \n"), write(tmp_path / "l", "a\nb\n"))}
    with pytest.raises(DataError, match="t:2 is empty"):
        read_lines(parts, name="x")


# --- GoEmotions


def test_emotions_are_numbers_of_named_labels(tmp_path: Path):
    names = write(tmp_path / "labels.txt", "joy\nfear\nneutral\n")
    train = write(tmp_path / "train.tsv", 'So "good"!\t0,2\tx1\nNo\t1\tx2\n')
    test = write(tmp_path / "test.tsv", "Ok\t2\tx3\n")
    data = read_emotions({"train": train, "test": test}, names)
    assert data.labels == ("joy", "fear", "neutral")
    assert data.inputs == ['So "good"!', "No", "Ok"]
    assert data.targets.toarray().tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 1]]
    assert data.published["train"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("text only", "must be a text, comma-separated label numbers and an id"),
        ("text\tjoy\tid", "must be a text, comma-separated label numbers and an id"),
        ("text\t\tid", "must be a text, comma-separated label numbers and an id"),
        ("text\t3\tid", "has label 3, but the highest of the 3 named labels is 2"),
    ],
)
def test_a_wrong_line_of_emotions_is_named(tmp_path: Path, line: str, message: str):
    names = write(tmp_path / "labels.txt", "joy\nfear\nneutral\n")
    train = write(tmp_path / "train.tsv", f"fine\t0\tid\n{line}\n")
    with pytest.raises(DataError, match=f"train.tsv:2 {message}"):
        read_emotions({"train": train}, names)


# --- MATLAB


def save(path: Path, **variables: np.ndarray) -> Path:
    matlab.savemat(path, variables)
    return path


def test_mat_files_give_numbered_labels(tmp_path: Path):
    inputs = np.zeros((4, 30), np.uint8)
    inputs[[0, 3], [1, 29]] = 1
    targets = np.array([[1, 0], [0, 0], [1, 1], [0, 1]], np.uint8)
    x, y = save(tmp_path / "x.mat", YAll=inputs), save(tmp_path / "y.mat", LAll=targets)
    data = read_mat(x, y, name="m")
    assert sparse.issparse(data.inputs)
    assert data.inputs.dtype == np.float32
    assert np.array_equal(data.inputs.toarray(), inputs)
    assert np.array_equal(data.targets.toarray(), targets)
    assert data.labels == ("label_0", "label_1")


def test_mat_features_that_are_mostly_there_stay_dense(tmp_path: Path):
    x = save(tmp_path / "x.mat", X=np.arange(6.0).reshape(3, 2))
    data = read_mat(x, save(tmp_path / "y.mat", Y=np.eye(3)), name="m")
    assert isinstance(data.inputs, np.ndarray)


def test_mat_errors_are_sentences(tmp_path: Path):
    good = save(tmp_path / "good.mat", Y=np.eye(3))
    with pytest.raises(DataError, match="not a MATLAB version 5 file"):
        read_mat(write(tmp_path / "junk.mat", b"junk " * 100), good, name="m")
    with pytest.raises(DataError, match="exactly one numeric matrix, not 2"):
        read_mat(save(tmp_path / "two.mat", A=np.eye(3), B=np.eye(3)), good, name="m")
    objects = np.empty(2, object)
    objects[:] = [np.eye(2), "text"]
    with pytest.raises(DataError, match="exactly one numeric matrix, not 0"):
        read_mat(save(tmp_path / "cell.mat", A=objects), good, name="m")
    with pytest.raises(DataError, match="other than 0 and 1"):
        read_mat(good, save(tmp_path / "y.mat", Y=2 * np.eye(3)), name="m")
    with pytest.raises(DataError, match=r"has 2 rows and .* has 3"):
        read_mat(save(tmp_path / "x.mat", X=np.eye(2)), good, name="m")


# --- headerless CSV pairs


def test_pairs_of_headerless_tables(tmp_path: Path):
    parts = {
        "train": (
            write(tmp_path / "a", "0.5,-1e3\n2,3\n"),
            write(tmp_path / "b", "1,0,1\n0,0,0\n"),
        ),
        "test": (write(tmp_path / "c", "7,8\n"), write(tmp_path / "d", "0,1,1\n")),
    }
    data = read_pairs(parts, name="p")
    assert data.inputs.tolist() == [[0.5, -1000], [2, 3], [7, 8]]
    assert data.inputs.dtype == np.float32
    assert data.targets.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 1]]
    assert data.published["test"].tolist() == [2]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ("1,2\nx,3\n", "1\n0\n", "not a table of numbers"),
        ("1,2\n3\n", "1\n0\n", "not a table of numbers"),
        ("1,2\nnan,3\n", "1\n0\n", "not finite"),
        ("", "1\n", "is empty"),
        ("1\n2\n", "1\n", "has 2 rows and .* has 1"),
        ("1\n2\n", "1\n3\n", "other than 0 and 1"),
    ],
)
def test_wrong_pairs_are_sentences(tmp_path: Path, x: str, y: str, message: str):
    with pytest.raises(DataError, match=message):
        read_pairs({"train": (write(tmp_path / "x", x), write(tmp_path / "y", y))}, name="p")


def test_parts_of_different_width_do_not_fit_together(tmp_path: Path):
    parts = {
        "train": (write(tmp_path / "a", "1,2\n"), write(tmp_path / "b", "1\n")),
        "test": (write(tmp_path / "c", "1,2,3\n"), write(tmp_path / "d", "1\n")),
    }
    with pytest.raises(DataError, match="test part of p differs from its train part"):
        read_pairs(parts, name="p")


# --- JSON lines and SMILES


def paper(**changes: object) -> str:
    fields = {"id": "1", "categories": ["cs.CV", "I.4", "68T45", "math-ph"], "title": "T "}
    return json.dumps({**fields, "summary": "S\nS2\n", **changes}) + "\n"


def test_arxiv_keeps_subjects_and_joins_title_and_summary(tmp_path: Path):
    first = write(tmp_path / "a.jsonl", paper())
    second = write(tmp_path / "b.jsonl", paper(categories=["cs.CV"]))
    data = read_arxiv([first, second], name="a")
    assert data.inputs == ["T\nS\nS2", "T\nS\nS2"]
    assert data.labels == ("cs.CV", "math-ph")
    assert label_names(data, 1) == {"cs.CV"}


def test_a_paper_without_a_field_is_named_by_its_line(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", paper() + paper(categories="cs.CV"))
    with pytest.raises(DataError, match="line 2: 'categories' must be there and a list"):
        read_arxiv([path], name="a")


def test_sider_is_smiles_and_the_other_columns_are_labels(tmp_path: Path):
    path = write(tmp_path / "sider.csv", 'smiles,Eye,"Ear, nose"\nCC(=O)O,0,1\nC,1,1\n')
    data = read_known(find_info("sider"), {"all": path})
    assert data.inputs == ["CC(=O)O", "C"]
    assert data.labels == ("Eye", "Ear, nose")
    assert data.targets.toarray().tolist() == [[0, 1], [1, 1]]


def test_eurlex_summaries_have_tags_and_a_split(tmp_path: Path):
    rows = [
        {"celex_id": "1", "split": part, "subjects": ["s"], "tags": tags, "summary": "text"}
        for part, tags in (("train", ["GATT", "a; b"]), ("validation", []), ("test", ["GATT"]))
    ]
    path = write(tmp_path / "e.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    data = read_known(find_info("eurlex_sum_en"), {"all": path})
    assert data.labels == ("GATT", "a; b")
    assert data.inputs == ["text"] * 3
    assert {part: rows.tolist() for part, rows in data.published.items()} == {
        "train": [0],
        "validation": [1],
        "test": [2],
    }
