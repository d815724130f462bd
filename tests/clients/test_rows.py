"""Rows of every accepted kind, checked by what json, numpy and scipy say they hold."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from array import array
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from labelwright_client import ClientError, InvalidArgument
from labelwright_client._rows import array_bytes, encode_rows


def dense(rows, width):
    """Fill a matrix cell by cell from sparse JSON rows."""
    matrix = np.zeros((len(rows), width))
    for i, row in enumerate(rows):
        for column, value in row.items():
            matrix[i, int(column)] = value
    return matrix


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[1, 2.5], [0, -1]], [[1.0, 2.5], [0.0, -1.0]]),
        (((1, 2), (3, 4)), [[1.0, 2.0], [3.0, 4.0]]),
        ([[True, False]], [[1.0, 0.0]]),
        ([[Fraction(1, 4)]], [[0.25]]),
        ([range(3)], [[0.0, 1.0, 2.0]]),
        ([array("f", [0.5, 2.0])], [[0.5, 2.0]]),
        ([[]], [[]]),
        ([{3: 1, 17: 0.5}, {}], [{"3": 1.0, "17": 0.5}, {}]),
        ([{"3": 1.0}], [{"3": 1.0}]),
        ([{np.int64(3): np.float32(0.5)}], [{"3": 0.5}]),
        (["one", "", "zwölf 十二"], ["one", "", "zwölf 十二"]),
        (np.array(["one", "two"]), ["one", "two"]),
        (np.array([[True], [False]]), [[1.0], [0.0]]),
        (np.array([[1, 2]], dtype=np.int8), [[1.0, 2.0]]),
        ([np.array([1.0, 2.0]), np.array([3.0, 4.0])], [[1.0, 2.0], [3.0, 4.0]]),
        ([[np.float32(0.5), np.int16(2)]], [[0.5, 2.0]]),
    ],
)
def test_each_kind_of_rows(rows, expected):
    encoded = encode_rows(rows)
    assert encoded == expected
    values = [
        v
        for row in encoded
        if not isinstance(row, str)
        for v in getattr(row, "values", row.__iter__)()
    ]
    assert all(type(value) is float for value in values)


@given(hnp.arrays(np.float32, (3, 4), elements=st.floats(-1e6, 1e6, width=32)))
def test_arrays_and_sparse_matrices_of_any_format_keep_every_value(matrix):
    assert np.array_equal(np.array(encode_rows(matrix)), matrix)
    for form in (sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_matrix):
        assert np.array_equal(dense(encode_rows(form(matrix)), 4), matrix)


def test_a_cell_stored_twice_in_a_sparse_matrix_counts_as_the_sum_and_the_matrix_is_left_alone():
    matrix = sp.csr_array(
        (np.array([1.0, 2.0, 5.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), (2, 3)
    )
    assert encode_rows(matrix) == [{"1": 3.0}, {"0": 5.0}]
    assert matrix.nnz == 3


@pytest.mark.needs_torch
def test_a_tensor_is_taken_by_its_tolist():
    torch = pytest.importorskip("torch")
    assert encode_rows(torch.ones(1, 2, requires_grad=True)) == [[1.0, 1.0]]


@pytest.mark.parametrize(
    "row",
    [
        [1.0, 2.0],
        (1, 2),
        np.array([1.0, 2.0]),
        list(np.array([1.0, 2.0])),
        "one text",
        b"bytes",
        {3: 1.0},
        5.0,
        np.array(5.0),
        sp.coo_array(np.array([1.0, 2.0])),
    ],
)
def test_one_flat_row_is_told_to_be_wrapped(row):
    with pytest.raises(InvalidArgument, match=r"one single row .*: wrap it, predict\(\[row\]\)"):
        encode_rows(row)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda bad: [[1.0], [2.0], [bad]],
        lambda bad: [{0: 1.0}, {}, {0: bad}],
        lambda bad: np.array([[1.0], [2.0], [bad]], dtype=np.float32),
        lambda bad: sp.csr_array(np.array([[1.0], [2.0], [bad]])),
    ],
)
def test_a_non_finite_number_is_refused_with_its_row(wrap, bad):
    with pytest.raises(InvalidArgument, match="row 2 holds NaN or infinity"):
        encode_rows(wrap(bad))


def test_duplicate_cells_whose_sum_overflows_are_refused():
    huge = sp.csr_array((np.array([1e308, 1e308]), np.array([0, 0]), np.array([0, 2])), (1, 1))
    with pytest.raises(InvalidArgument, match="row 0 holds NaN or infinity"):
        encode_rows(huge)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "got no rows"),
        (np.zeros((0, 3)), "got no rows"),
        (sp.csr_array((0, 3)), "no rows"),
        (None, "got NoneType: convert it"),
        ((row for row in [[1.0]]), "got generator: convert it"),
        ([None], "row 0 is a NoneType: expected a list of numbers"),
        ([[1.0], "text"], "row 1 is a str: expected a list of numbers"),
        ([[1.0], b"bytes"], "row 1 is a bytes: expected a list of numbers"),
        ([[1.0], {0: 1.0}], "row 1 is a dict: expected a list of numbers"),
        (["text", [1.0]], "row 1 is a list: expected a text"),
        ([{0: 1.0}, [1.0]], r"row 1 is a list: expected an \{index: value\} dict"),
        ([[1.0], ["2"]], "row 1 holds a str: expected numbers only"),
        ([[1.0, None]], "row 0 holds a NoneType"),
        ([[Decimal(1)]], "row 0 holds a Decimal"),
        (np.zeros((1, 2, 3)), "row 0 holds a list"),
        (np.array([[1j]]), "row 0 holds a complex"),
        (sp.csr_array(np.array([[1j]])), "row 0 holds a complex"),
        ([[10**400]], "row 0 holds a number too large"),
        ([{}, {1.5: 1.0}], "row 1 has the index 1.5: expected a column number"),
        ([{3: 1.0, "3": 2.0}], "row 0 gives one index twice"),
        (["fine", "\ud800"], "row 1 is not valid Unicode"),
    ],
)
def test_what_is_no_list_of_rows_is_refused_in_one_sentence(rows, message):
    with pytest.raises(InvalidArgument, match=message) as caught:
        encode_rows(rows)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, ClientError)
    assert caught.value.request_id is None


def test_a_data_frame_is_its_numbers_and_a_column_of_texts_is_texts():
    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5], "c": [True, False]})
    assert encode_rows(frame) == [[1.0, 0.5, 1.0], [2.0, 1.5, 0.0]]
    content, count = array_bytes(frame)
    assert count == 2
    assert np.load(io.BytesIO(content)).tolist() == encode_rows(frame)
    assert encode_rows(pd.Series(["one", "two"])) == ["one", "two"]


@pytest.mark.parametrize("column", [["x", "y"], pd.to_datetime(["2020-01-01"] * 2)])
def test_a_data_frame_with_other_columns_than_numbers_is_refused_by_their_name(column):
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": column})
    for read in (encode_rows, array_bytes):
        with pytest.raises(InvalidArgument, match="column 'b' of the data frame holds no numbers"):
            read(frame)


@pytest.mark.parametrize("dtype", ["float64", "Float64", "Int64"])
def test_a_missing_value_in_a_data_frame_is_refused_with_its_row(dtype):
    frame = pd.DataFrame({"a": pd.array([1, 2], dtype=dtype), "b": [1.0, 2.0]})
    frame.loc[1, "a"] = None
    assert array_bytes(frame) is None
    with pytest.raises(InvalidArgument, match="row 1 holds NaN"):
        encode_rows(frame)


def test_the_package_imports_nothing_but_httpx_and_what_httpx_brings():
    script = (
        "import sys;"
        "sys.modules.update(numpy=None, scipy=None, pandas=None, torch=None, pydantic=None);"
        "import labelwright_client.cli;"
        "from labelwright_client._rows import encode_rows; assert encode_rows([[1]]) == [[1.0]]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
