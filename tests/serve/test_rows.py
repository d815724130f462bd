from __future__ import annotations

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.errors import InvalidInputError, TooLargeError
from serve.inputs import DenseRows, SparseRows, TextRows
from serve.rows import WIDEST_IN_FULL, RowRules, may_hold_booleans, parse_rows

WIDTH = 3
numbers = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.integers(-(2**63), 2**64 - 1),
)


def parse_as(kind, inputs, *, width=WIDTH, max_rows=100):
    body = orjson.dumps({"inputs": inputs})
    parsed = orjson.loads(body)["inputs"]
    rules = RowRules(kind, width, max_rows, max_characters=10)
    return parse_rows(parsed, rules, with_booleans=may_hold_booleans(body))


def parse(inputs, **options):
    rows = parse_as("features", inputs, **options)
    assert isinstance(rows, DenseRows)
    assert len(rows) == len(rows.features)
    assert rows.nbytes == rows.features.nbytes
    return rows.features


def parse_sparse(inputs, **options):
    """Parse for a model of sparse rows, and put what is stored where it belongs."""
    rows = parse_as("sparse", inputs, **options)
    assert isinstance(rows, SparseRows)
    assert rows.nbytes == 8 * len(rows) + 12 * len(rows.columns)
    features = np.zeros((len(rows), WIDTH), np.float32)
    np.add.at(features, (np.repeat(np.arange(len(rows)), rows.counts), rows.columns), rows.values)
    return features


@given(st.lists(st.lists(numbers, min_size=WIDTH, max_size=WIDTH), min_size=1, max_size=5))
def test_dense_rows_keep_every_number(rows):
    features = parse(rows)
    assert features.dtype == np.float32
    assert features.shape == (len(rows), WIDTH)
    for row, parsed in zip(rows, features, strict=True):
        assert [float(np.float32(value)) for value in row] == parsed.tolist()


@given(st.lists(st.dictionaries(st.integers(0, WIDTH - 1), numbers), min_size=1, max_size=5))
def test_sparse_rows_are_zero_elsewhere(rows):
    features = parse([{str(column): value for column, value in row.items()} for row in rows])
    assert features.dtype == np.float32
    for row, parsed in zip(rows, features, strict=True):
        expected = [float(np.float32(row.get(column, 0.0))) for column in range(WIDTH)]
        assert expected == parsed.tolist()


@given(st.lists(st.dictionaries(st.integers(0, WIDTH - 1), numbers), min_size=1, max_size=5))
def test_a_model_of_sparse_rows_gets_the_same_numbers(rows):
    keyed = [{str(column): value for column, value in row.items()} for row in rows]
    np.testing.assert_array_equal(parse_sparse(keyed), parse(keyed))
    in_full = [[row.get(column, 0) for column in range(WIDTH)] for row in rows]
    np.testing.assert_array_equal(parse_sparse(in_full), parse(in_full))


def test_very_wide_rows_are_not_taken_in_full():
    with pytest.raises(InvalidInputError, match="row 0 must be an object from column number"):
        parse_as("sparse", [[0.0]], width=WIDEST_IN_FULL + 1)


@pytest.mark.parametrize("kind", ["features", "sparse"])
def test_one_column_under_two_names_is_refused(kind):
    with pytest.raises(InvalidInputError, match="row 1 gives column 2 twice"):
        parse_as(kind, [{"0": 1.0}, {"1": 1.0, "2": 1.0, "02": 3.0}])


def test_texts_are_kept_as_they_are():
    texts = ["", "ten chars!", "\U0001f600 ß\0"]
    rows = parse_as("text", texts)
    assert isinstance(rows, TextRows)
    assert rows.texts == texts
    assert len(rows) == 3


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        (["a", 1], "row 1 must be a text, got a number"),
        ([[1, 2]], "row 0 must be a text, got a list"),
        (["a", "b" * 11], "row 1 has 11 characters, at most 10 are taken"),
        ("a", "must be a list of rows, got a string"),
    ],
)
def test_what_is_no_text_is_named(inputs, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        parse_as("text", inputs)


GOOD, GOOD_SPARSE = [0.1, 0.2, 0.3], {"0": 1.0}


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({"0": [1, 2, 3]}, "must be a list of rows, got an object"),
        (None, "must be a list of rows, got null"),
        (1.5, "must be a list of rows, got a number"),
        ("text", "must be a list of rows, got a string"),
        ([], "at least one row"),
        ([0.1, 0.2, 0.3], "wrap it in a list"),
        (["some text"], "this model takes 3 numbers a row, got text in row 0"),
        ([None], "row 0 must be a list of 3 numbers, got null"),
        ([True], "row 0 must be a list of 3 numbers, got a boolean"),
        ([[]], "row 0 must have 3 numbers, got 0"),
        ([[0.1, 0.2]], "row 0 must have 3 numbers, got 2"),
        ([GOOD, [0.1]], "row 1 must have 3 numbers, got 1"),
        ([GOOD, [0.1] * 4, GOOD], "row 1 must have 3 numbers, got 4"),
        ([GOOD, [0.1] * 4, [0.1] * 2], "row 1 must have 3 numbers, got 4"),
        ([GOOD, ["0.1", 0.2, 0.3]], "row 1 must hold numbers only, got a string"),
        ([GOOD, [0.1, None, 0.3]], "row 1 must hold numbers only, got null"),
        ([GOOD, [0.1, True, 0.3]], "row 1 must hold numbers only, got a boolean"),
        ([[False, False, False]], "row 0 must hold numbers only, got a boolean"),
        ([GOOD, [0.1, [0.2], 0.3]], "row 1 must hold numbers only, got a list"),
        ([[[0.1], [0.2], [0.3]]], "row 0 must hold numbers only, got a list"),
        ([GOOD, [0.1, {}, 0.3]], "row 1 must hold numbers only, got an object"),
        ([GOOD, 0.1], "row 1 is a number while row 0 is a list"),
        ([GOOD, GOOD, GOOD_SPARSE], "row 2 is an object while row 0 is a list"),
        ([GOOD, [0.1, 0.2, 1e39]], "row 1 holds a number that is not finite"),
        ([GOOD, [-1e300, 0.2, 0.1]], "row 1 holds a number that is not finite"),
        ([GOOD_SPARSE, GOOD], "row 1 is a list while row 0 is an object"),
        ([GOOD_SPARSE, {"3": 1.0}], "row 1 has column 3, this model's columns are 0 to 2"),
        ([GOOD_SPARSE, {"9" * 30: 1.0}], "row 1 has column 99999"),
        ([GOOD_SPARSE, {"9" * 5000: 1.0}], "row 1 has column 99999"),
        ([GOOD_SPARSE, {"0" * 5000 + "1": 1.0}], "row 1 has column 00000"),
        ([{"9300000000000000000": 1.0}], "row 0 has column 9300000000000000000"),
        ([GOOD_SPARSE, {"-1": 1.0}], "whole column numbers as keys, got '-1'"),
        ([GOOD_SPARSE, {"1.0": 1.0}], "whole column numbers as keys, got '1.0'"),
        ([GOOD_SPARSE, {"": 1.0}], "whole column numbers as keys, got ''"),
        ([{"1_0": 1.0}], "whole column numbers as keys, got '1_0'"),
        ([{" 1": 1.0}], "whole column numbers as keys, got ' 1'"),
        ([{"٣": 1.0}], "whole column numbers as keys"),
        ([{"²": 1.0}], "whole column numbers as keys"),
        ([GOOD_SPARSE, {"1": "x"}], "row 1 must hold numbers only, got a string"),
        ([GOOD_SPARSE, {"1": None}], "row 1 must hold numbers only, got null"),
        ([GOOD_SPARSE, {"1": True, "2": 0.5}], "row 1 must hold numbers only, got a boolean"),
        ([GOOD_SPARSE, {"1": [1.0]}], "row 1 must hold numbers only, got a list"),
        ([{"1": [1.0]}], "row 0 must hold numbers only, got a list"),
        ([GOOD_SPARSE, {"1": 1e39}], "row 1 holds a number that is not finite"),
    ],
)
@pytest.mark.parametrize("kind", ["features", "sparse"])
def test_one_sentence_names_the_guilty_row(kind, inputs, sentence):
    with pytest.raises(InvalidInputError) as caught:
        parse_as(kind, inputs)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_many_rows_are_refused_before_they_are_converted():
    with pytest.raises(TooLargeError, match="at most 2 rows fit into one request, got 3"):
        parse([{}, {}, {}], max_rows=2, width=10**12)


def test_an_empty_sparse_row_is_all_zero():
    assert parse([{}, {}]).tolist() == [[0, 0, 0], [0, 0, 0]]


values = st.one_of(st.booleans(), st.floats(allow_nan=False), st.sampled_from(["fu", "true"]))


@given(st.lists(st.lists(values, max_size=4), max_size=4))
def test_no_boolean_goes_unnoticed(rows):
    body = orjson.dumps({"inputs": rows})
    has_boolean = any(isinstance(value, bool) for row in rows for value in row)
    assert may_hold_booleans(body) or not has_boolean
