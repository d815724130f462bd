from __future__ import annotations

import numpy as np
import pytest

from train.data.clus import read_clus
from train.data.formats import read_path
from train.errors import DataError

HEADER = """@RELATION 'tiny'
@ATTRIBUTE t numeric
@ATTRIBUTE t numeric
@ATTRIBUTE flag {no,yes}
@ATTRIBUTE class hierarchical 01,01/01,01/01/03,02
@DATA
"""


def write(folder, part, *rows, header=HEADER):
    path = folder / f"tiny.{part}.arff"
    path.write_text(header + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_ancestors_are_closed_and_columns_are_the_listed_nodes(tmp_path):
    data = read_clus(write(tmp_path, "train", "1,2,no,01/01/03@02", "1,2,yes,01/01", "3,4,no,02"))
    assert data.name == "tiny"
    assert data.labels == ("01", "01/01", "01/01/03", "02")
    assert data.targets.toarray().tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 1]]
    assert data.targets.dtype == np.uint8
    assert data.features == ("t", "t", "flag=no", "flag=yes")
    assert data.inputs.tolist() == [[1, 2, 1, 0], [1, 2, 0, 1], [3, 4, 1, 0]]
    assert data.published == {}


def test_root_is_on_in_every_row_when_asked_for(tmp_path):
    path = write(tmp_path, "train", "1,2,no,02", "1,2,no,01")
    data = read_clus(path, with_root=True)
    assert data.labels[:2] == ("root", "01")
    assert data.targets.toarray().tolist() == [[1, 0, 0, 0, 1], [1, 1, 0, 0, 0]]


def test_gaps_are_filled_from_the_train_rows_alone(tmp_path):
    train = write(tmp_path, "train", "1,?,yes,01", "3,?,yes,01", "?,?,no,01", "5,?,?,01")
    write(tmp_path, "valid", "100,7,no,02")
    write(tmp_path, "test", "?,?,?,02")
    data = read_path(train)
    assert data.inputs[2, 0] == 3
    assert data.inputs[3].tolist() == [5, 0, 0, 1]
    assert data.inputs[5].tolist() == [3, 0, 0, 1]
    assert {part: rows.tolist() for part, rows in data.published.items()} == {
        "train": [0, 1, 2, 3],
        "validation": [4],
        "test": [5],
    }


def test_a_set_without_train_part_is_filled_from_its_first_part(tmp_path):
    write(tmp_path, "valid", "2,1,no,01", "4,1,no,01")
    data = read_path(write(tmp_path, "test", "?,1,no,02", "9,1,no,02"))
    assert data.inputs[:, 0].tolist() == [2, 4, 3, 9]
    assert set(data.published) == {"validation", "test"}
    assert data.name == "tiny"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("1,2,no,03", "line 8: '03' is not one of the 4 declared nodes"),
        ("1,2,no,", "line 8: '' is not one of the 4"),
        ("1,2,no", "line 8: expected 4 values.* got 3"),
        ("1,x,no,01", "line 8: attribute 't' must be a number or \\?, got 'x'"),
        ("1,2,maybe,01", "line 8: attribute 'flag' has no value 'maybe': declared are no, yes"),
    ],
)
def test_mistakes_are_named_by_line(tmp_path, row, sentence):
    with pytest.raises(DataError, match=sentence):
        read_clus(write(tmp_path, "train", "1,2,no,01", row))


def test_mistakes_of_a_later_part_name_its_own_file(tmp_path):
    train, test = write(tmp_path, "train", "1,2,no,01"), write(tmp_path, "test", "1,2,no,09")
    with pytest.raises(DataError, match=r"tiny\.test\.arff, line 7: '09'"):
        read_clus(train, None, test)


def test_parts_must_declare_the_same_and_end_in_a_tree(tmp_path):
    train = write(tmp_path, "train", "1,2,no,01")
    other = write(tmp_path, "test", "1,2,no,01", header=HEADER.replace("01/01/03,", ""))
    with pytest.raises(DataError, match="declares other attributes"):
        read_clus(train, None, other)
    flat = HEADER.replace("class hierarchical 01,01/01,01/01/03,02", "y {0,1}")
    with pytest.raises(DataError, match="last attribute must be 'hierarchical'"):
        read_clus(write(tmp_path, "train", "1,2,no,1", header=flat))
    with pytest.raises(DataError, match="no part"):
        read_clus(None)


def test_a_tree_alone_is_nothing_to_learn_from(tmp_path):
    """Found by the fuzzer that follows coverage."""
    header = "@relation r\n@attribute class hierarchical 01,02\n@data\n"
    with pytest.raises(DataError, match="no attribute before the tree of labels"):
        read_clus(write(tmp_path, "train", "01", header=header))


@pytest.mark.parametrize(
    ("name", "sizes", "features", "means"),
    [
        ("spo_FUN", {"train": 1600, "validation": 837, "test": 1266}, 86, {"train": 8.75}),
        ("gasch1_FUN", {"train": 1634, "validation": 846, "test": 1284}, 173, {"train": 8.70}),
        ("cellcycle_FUN", {"train": 1628, "validation": 848, "test": 1281}, 77, {"train": 8.72}),
        ("expr_FUN", {"validation": 849, "test": 1291}, 561, {"validation": 8.59, "test": 8.89}),
    ],
)
def test_published_counts(real_data_dir, name, sizes, features, means):
    data = read_path(next((real_data_dir / name).glob(f"{name}.test.arff*")))
    assert data.name == name
    assert {part: len(rows) for part, rows in data.published.items()} == sizes
    assert (data.n_features, data.n_labels) == (features, 499)
    assert np.isfinite(data.inputs).all()
    for part, mean in means.items():
        rows = data.published[part]
        assert data.targets[rows].nnz / len(rows) == pytest.approx(mean, abs=0.0051)


def test_published_rows_equal_a_slow_reading(real_data_dir):
    path = real_data_dir / "spo_FUN" / "spo_FUN.valid.arff"
    data = read_clus(path)
    body = path.read_text().split("@DATA\n")[1].split()
    for row, line in list(enumerate(body))[::50]:
        *values, nodes = line.split(",")
        closed = {node[:end] for node in nodes.split("@") for end in (2, 5, 8, 11, 14)}
        found = {data.labels[column] for column in data.targets[[row]].indices}
        assert found == closed
        numbers = {i: float(v) for i, v in enumerate(values[:77]) if v != "?"}
        np.testing.assert_array_equal(
            data.inputs[row, list(numbers)], np.array(list(numbers.values()), dtype=np.float32)
        )
