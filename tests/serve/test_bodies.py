"""Bodies other than JSON, and the quick way of reading JSON beside the slow one."""

from __future__ import annotations

import gzip
import io
import json
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve import api
from serve.bodies import npy_rows, raw_rows, unpacked
from serve.errors import ApiError, InvalidInputError, MalformedBodyError, TooLargeError
from serve.quickjson import quick_payload
from serve.rows import RowRules, may_hold_booleans, parse_rows

ROWS = np.arange(12, dtype=np.float32).reshape(2, 6)
ARRAY = {"content-type": "application/octet-stream"}


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def test_raw_rows_are_little_endian_float32():
    np.testing.assert_array_equal(raw_rows(ROWS.astype("<f4").tobytes(), 6), ROWS)


@pytest.mark.parametrize("size", [0, 1, 23, 25, 47])
def test_a_part_of_a_row_is_refused(size):
    with pytest.raises(InvalidInputError, match=f"24 bytes each, got {size} bytes"):
        raw_rows(bytes(size), 6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_npy_rows_are_what_numpy_saved(dtype):
    rows = npy_rows(npy(ROWS.astype(dtype)), 6)
    assert rows.dtype == dtype
    np.testing.assert_array_equal(rows, ROWS)
    np.testing.assert_array_equal(npy_rows(npy(ROWS[0].astype(dtype)), 6), ROWS[:1])


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_npy_header_is_read(version):
    file = io.BytesIO()
    np.lib.format.write_array(file, ROWS, version=version)
    np.testing.assert_array_equal(npy_rows(file.getvalue(), 6), ROWS)


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (ROWS.astype(np.int64), "must be float32 or float64 in C order, got '<i8'"),
        (ROWS.astype(">f4"), "got '>f4'"),
        (np.asfortranarray(ROWS), "in Fortran order"),
        (ROWS[:, :5], r"must have the shape \(rows, 6\), got \(2, 5\)"),
        (ROWS[:0], r"got \(0, 6\)"),
        (ROWS[None], r"got \(1, 2, 6\)"),
    ],
)
def test_other_arrays_are_refused(array, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        npy_rows(npy(array), 6)


def test_objects_are_never_unpickled():
    body = npy(np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidInputError, match=r"got '\|O'"):
        npy_rows(body, 6)


@pytest.mark.parametrize("body", [b"", b"\x93NUMPY", npy(ROWS)[:-1], npy(ROWS) + b"x", b"x" * 200])
def test_what_is_no_npy_file_is_refused(body):
    with pytest.raises(MalformedBodyError):
        npy_rows(body, 6)


def test_a_header_that_is_no_dict_is_refused():
    text = b"[1, 2]".ljust(118) + b"\n"
    body = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    with pytest.raises(MalformedBodyError, match="must be a dict"):
        npy_rows(body, 6)


def test_gzip_is_unpacked_up_to_the_limit():
    plain = b"x" * 1000
    assert unpacked(gzip.compress(plain), b"gzip", 1000) == plain
    assert unpacked(gzip.compress(plain), b" GZIP ", 1000) == plain
    assert unpacked(zlib.compress(plain), b"deflate", 1000) == plain
    assert unpacked(plain, b"identity", 1000) == plain
    with pytest.raises(TooLargeError, match="at most 999 bytes once unpacked"):
        unpacked(gzip.compress(plain), b"gzip", 999)


def test_a_bomb_is_not_unpacked_to_its_end(monkeypatch):
    """What is held at any time is the limit and one byte, not what the body would become."""
    bomb = gzip.compress(bytes(50 * 2**20))
    sizes = []

    class Counting:
        def __init__(self, wbits):
            self._inner = zlib_decompressobj(wbits)

        def decompress(self, data, limit):
            plain = self._inner.decompress(data, limit)
            sizes.append(len(plain))
            return plain

    zlib_decompressobj = zlib.decompressobj
    monkeypatch.setattr("serve.bodies.zlib.decompressobj", Counting)
    with pytest.raises(TooLargeError):
        unpacked(bomb, b"gzip", 1000)
    assert sizes == [1001]


@pytest.mark.parametrize("change", [lambda b: b[:-3], lambda b: b + b"x", lambda _: b"{}"])
def test_damaged_gzip_is_refused(change):
    with pytest.raises(MalformedBodyError):
        unpacked(change(gzip.compress(b"{}")), b"gzip", 1000)


@pytest.mark.parametrize(
    ("query", "status", "sentence"),
    [
        ("?topk=2", 422, "the query has an unknown field 'topk': did you mean 'top_k'"),
        ("?top_k=2&top_k=3", 422, "twice"),
        ("?top_k=two", 422, '"top_k" must be a whole number, got "two"'),
        ("?top_k=99999999999999999999999999", 422, '"top_k" must be 1 to 8'),
        ("?threshold=high", 422, '"threshold" must be a number from 0 to 1'),
        ("?threshold=nan", 422, '"threshold" must be a number from 0 to 1'),
        ("?model=none", 404, "no model 'none' is loaded"),
    ],
)
def test_wrong_options_of_an_array_are_refused(app, query, status, sentence):
    answer = app.request("POST", f"/predict{query}", content=ROWS.tobytes(), headers=ARRAY)
    assert answer.status_code == status
    assert sentence in answer.json()["error"]["message"]


@pytest.mark.parametrize(("query", "limit"), [("0.5", 0.5), ("tuned", 0.45)])
def test_a_threshold_in_the_query(app, model, query, limit):
    rows = model.rows(4)
    content = np.array(rows, dtype=np.float32).tobytes()
    path = f"/predict?threshold={query}"
    answer = app.request("POST", path, content=content, headers=ARRAY).json()
    for row, prediction in zip(rows, answer["predictions"], strict=True):
        assert prediction["labels"] == [name for name, _ in model.expected(row, None, limit)]


def test_a_query_beside_a_json_body_is_refused(app, model):
    answer = app.request("POST", "/predict?top_k=1", json={"inputs": model.rows(1)})
    assert answer.status_code == 422
    assert "leave the query out" in answer.json()["error"]["message"]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_row_that_is_not_finite_is_named(app, bad):
    rows = np.zeros((4, 6), dtype=np.float32)
    rows[2, 3] = bad
    answer = app.request("POST", "/predict", content=rows.tobytes(), headers=ARRAY)
    assert answer.status_code == 422
    assert "row 2 holds a number that is not finite" in answer.json()["error"]["message"]


def test_too_many_rows_of_an_array_are_refused(serve_app):
    app = serve_app(max_queue_rows=3)
    rows = np.zeros((4, 6), dtype=np.float32)
    answer = app.request("POST", "/predict", content=rows.tobytes(), headers=ARRAY)
    assert answer.status_code == 413
    assert "at most 3 rows fit into one request, got 4" in answer.json()["error"]["message"]


numbers = (
    st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.just(3.5e38)
)
values = numbers | st.booleans() | st.none() | st.text(max_size=2) | st.lists(numbers, max_size=2)
rows_of_three = st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=3)
odd_rows = st.lists(st.lists(values, max_size=4) | values, max_size=3)


def slowly(body, width):
    """What the slow way makes of a body: rows, or the class of its error."""
    try:
        payload = api.parse_body(body)
        rows = payload.pop("inputs")
        rules = RowRules("features", width, 100, 100)
        parsed = parse_rows(rows, rules, with_booleans=may_hold_booleans(body))
    except ApiError as error:
        return type(error)
    return payload, parsed.features


@given(inputs=rows_of_three | odd_rows, top_k=st.integers(0, 9) | st.none())
def test_the_quick_way_reads_what_the_slow_way_reads(inputs, top_k):
    body = json.dumps({"inputs": inputs, "top_k": top_k, "model": "a"}).encode()
    quick = quick_payload(body)
    if quick is None or quick[1].shape[1] != 3:
        return
    fields, features = quick
    slow_fields, slow_features = slowly(body, 3)
    assert fields == slow_fields
    np.testing.assert_array_equal(features, slow_features)


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs": [[[1], [2]]]}',
        b'{"inputs": [[1, 2]], "inputs": [[3, 4]]}',
        b'{"inputs": [[1, true]]}',
        b'{"inputs": [[1, 1e39]]}',
        b'{"inputs": [[1, 1e999]]}',
        b'{"inputs": [[1, 2], [3]]}',
        b'{"inputs": [1, 2]}',
        b'{"inputs": ["ab", "cd"]}',
        b'{"inputs": [{"1": 2}]}',
        b'{"inputs": [[1, 2]], "model": ["a"]}',
        b'{"inputs": []}',
        b'{"top_k": 3}',
        b"[[1, 2]]",
        b"3",
        b"",
        b"{",
    ],
)
def test_everything_odd_is_left_to_the_slow_way(body):
    assert quick_payload(body) is None
    assert quick_payload(b'{"inputs": [[1, 2]]}') is not None
