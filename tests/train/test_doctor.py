"""Each finding appears when it should, with the right rows, and not otherwise."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from train.data import MultiLabelData, Split
from train.data.dataset import ImageShape
from train.data_display import BLOCKS, frequency_bars
from train.doctor import examine
from train.doctor.features import feature_findings
from train.doctor.files import order_findings, stray_findings
from train.doctor.finding import Finding
from train.doctor.labels import label_findings
from train.doctor.names import name_findings
from train.doctor.rows import row_findings, row_groups


def make_data(inputs, targets, **fields) -> MultiLabelData:
    targets = sparse.csr_array(np.asarray(targets, dtype=np.uint8))
    labels = tuple(f"L{column}" for column in range(targets.shape[1]))
    return MultiLabelData(
        **{"name": "x", "inputs": inputs, "targets": targets, "labels": labels} | fields
    )


def make_split(train, validation, test) -> Split:
    parts = (np.array(part, dtype=np.int64) for part in (train, validation, test))
    return Split(**dict(zip(("train", "validation", "test"), parts, strict=True)), rule="made up")


@pytest.fixture
def healthy() -> tuple[MultiLabelData, Split]:
    rng = np.random.default_rng(0)
    targets = np.tile([[1, 0], [0, 1], [1, 1]], (10, 1))
    inputs = rng.normal(size=(30, 4)).astype(np.float32)
    rows = np.arange(30)
    return make_data(inputs, targets), make_split(rows[:18], rows[18:24], rows[24:])


def only(findings: list[Finding], words: str) -> Finding:
    matching = [finding for finding in findings if words in finding.what]
    assert len(matching) == 1, [finding.what for finding in findings]
    return matching[0]


def test_healthy_data_has_no_findings(healthy):
    data, split = healthy
    assert examine(data, split) == []
    assert examine(replace(data, inputs=sparse.csr_array(data.inputs)), split) == []
    assert examine(replace(data, inputs=[f"text {row}" for row in range(30)]), split) == []


# Rows -------------------------------------------------------------------------------------------

small = st.lists(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.5]), min_size=3, max_size=3), min_size=1
)


@given(small)
def test_equal_rows_share_a_group_dense_sparse_and_text(rows):
    dense = np.array(rows, dtype=np.float32)
    expected = [[bool((a == b).all()) for b in dense] for a in dense]
    texts = [" ".join(f"{value + 0.0}" for value in row) for row in rows]
    for same in (dense, sparse.csr_array(dense), texts):
        groups = row_groups(same)
        assert (groups[:, None] == groups[None, :]).tolist() == expected


def test_explicit_zeros_and_order_of_entries_do_not_make_rows_different():
    matrix = sparse.csr_array(
        (np.array([1, 2, 2, 1, 0], np.float32), np.array([0, 2, 2, 0, 1]), np.array([0, 2, 5])),
        shape=(2, 3),
    )
    assert len(set(row_groups(matrix))) == 1
    assert matrix.nnz == 5, "the matrix itself is left as it was"


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), min_size=3))
def test_repeated_rows_are_those_of_a_slow_count(rows):
    """(input, label set, part) of each row; the oracle compares all pairs of rows."""
    inputs = np.array([[value, 1] for value, _, _ in rows], dtype=np.float32)
    data = make_data(inputs, [[1, label == 1, label == 2] for _, label, _ in rows])
    split = make_split(*([i for i, row in enumerate(rows) if row[2] == p] for p in range(3)))
    across = [
        (len(repeated), len(same), len({rows[i][:2] for i in same}))
        for part, seen in ((2, (0, 1)), (1, (0,)))
        if (repeated := _with_equal(rows, part, seen, 1))
        for same in [_with_equal(rows, part, seen, 2)]
    ]
    findings = row_findings(data, split)
    told = [finding for finding in findings if "the same inputs as" in finding.what]
    assert [_numbers(finding.what) for finding in told] == [list(numbers) for numbers in across]
    sets = {value: {label for v, label, _ in rows if v == value} for value, _, _ in rows}
    torn = [value for value, labels in sets.items() if len(labels) > 1]
    contradictions = [f for f in findings if "several label sets" in f.what]
    assert bool(contradictions) == bool(torn)
    if torn:
        n_rows = sum(value in torn for value, _, _ in rows)
        assert _numbers(contradictions[0].what) == [len(torn), n_rows]
    within = sum(n - 1 for n in Counter((value, part) for value, _, part in rows).values())
    repeats = [_numbers(f.what)[0] for f in findings if "of an earlier row" in f.what]
    assert repeats == ([within] if within else [])


def _with_equal(rows, part, seen, width):
    return [
        i
        for i, row in enumerate(rows)
        if row[2] == part and any(o[2] in seen and o[:width] == row[:width] for o in rows)
    ]


def _numbers(sentence: str) -> list[int]:
    words = sentence.replace("(", " ").replace(")", " ").split()
    return [int(word) for word in words if word.isdigit()]


def test_rows_are_named_from_one_and_the_first_few_only():
    data = make_data(np.arange(24, dtype=np.float32).reshape(12, 2), [[1]] * 2 + [[0]] * 10)
    split = make_split(range(8), range(8, 10), range(10, 12))
    finding = only(row_findings(data, split), "no label")
    assert finding == Finding(
        severity="warning",
        what="10 rows have no label",
        where="rows 3, 4, 5, 6, 7 and 5 more",
        advice="remove them if their labels are unknown rather than none",
    )


def test_unlabelled_rows_that_the_split_leaves_out_are_only_a_note():
    data = make_data(np.eye(5, dtype=np.float32), [[1], [1], [1], [1], [0]])
    finding = only(row_findings(data, make_split([0, 1], [2], [3])), "no label")
    assert (finding.severity, finding.what) == ("note", "1 row has no label")


def test_a_part_without_rows_and_parts_that_overlap_are_errors():
    data = make_data(np.eye(4, dtype=np.float32), [[1]] * 4)
    findings = row_findings(data, make_split([0, 1, 2], [], [2, 3]))
    assert only(findings, "the validation part has no rows").severity == "error"
    overlap = only(findings, "in train and in test")
    assert (overlap.severity, overlap.where) == ("error", "row 3")


def test_the_same_row_in_two_parts_is_not_told_twice_as_a_duplicate():
    data = make_data(np.eye(4, dtype=np.float32), [[1]] * 4)
    findings = row_findings(data, make_split([0, 1, 2], [3], [2]))
    assert [finding.severity for finding in findings] == ["error"]


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_rows_of_zeros_are_noted(make):
    inputs = make(np.array([[1, 2], [0, 0], [3, 0], [0, 4]], dtype=np.float32))
    findings = row_findings(make_data(inputs, [[1]] * 4), make_split([0, 1], [2], [3]))
    assert only(findings, "no feature other than 0").where == "row 2"


def test_empty_texts_are_a_warning():
    data = make_data(["a", " \n", "b", ""], [[1]] * 4)
    finding = only(row_findings(data, make_split([0, 1], [2], [3])), "an empty text")
    assert (finding.severity, finding.where) == ("warning", "rows 2, 4")


# Labels -----------------------------------------------------------------------------------------


def test_labels_are_counted_in_all_rows_and_by_part():
    targets = np.zeros((12, 6), dtype=int)
    targets[:, 0] = 1  # in every row
    targets[[0, 1, 9, 11], 1] = 1  # healthy
    targets[[9, 10, 8], 2] = 1  # validation only
    targets[[8, 11, 10], 3] = 1  # validation and test only
    targets[[0, 11], 4] = 1  # rare; label 5 has no row
    data = make_data(np.eye(12, dtype=np.float32), targets)
    findings = label_findings(data, make_split(range(8), [8, 9, 10], [11]))
    told = {finding.what: finding.where for finding in findings}
    assert told == {
        "1 label has no row": "label L5",
        "2 labels have no train row, but rows in test (1) or validation (2)": "labels L2, L3",
        "1 label has fewer than 3 rows": "label L4",
        "every row has 1 label in common": "label L0",
    }


def test_more_labels_than_rows_is_a_note():
    data = make_data(np.eye(3, dtype=np.float32), np.ones((3, 4)))
    finding = only(
        label_findings(data, make_split([0], [1], [2])), "fewer rows (3) than labels (4)"
    )
    assert finding.severity == "note"


@pytest.mark.parametrize("n_labels", [0, 2])
def test_no_label_at_all_is_one_error(n_labels):
    inputs = np.arange(1, 5, dtype=np.float32)[:, None]
    data = make_data(inputs, np.zeros((4, n_labels)))
    findings = examine(data, make_split([0, 1], [2], [3]))
    assert [(f.severity, f.what) for f in findings] == [("error", "no row has any label")]


def test_label_names():
    findings = name_findings(["a", "b", "a", "New  York", "new york", "NewYork ", "", " "])
    told = {finding.what: (finding.severity, finding.where) for finding in findings}
    assert told == {
        "2 labels have an empty name": ("error", "columns 6, 7"),
        "1 label name is given more than once": ("error", "label a"),
        "1 label is spelled in several ways that differ only in case or white space": (
            "warning",
            "'New  York' and 'NewYork ' and 'new york'",
        ),
    }


def test_good_label_names_pass():
    assert name_findings(["a", "b", "c d", "c-d"]) == []


# Features ---------------------------------------------------------------------------------------

BOTH = pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])


@BOTH
def test_constant_features_are_those_of_the_train_rows(healthy, make):
    data, split = healthy
    inputs = np.hstack([data.inputs, np.zeros((30, 1)), np.full((30, 1), 3), np.eye(30)[:, 29:]])
    data = replace(data, inputs=make(inputs.astype(np.float32)))
    finding = only(feature_findings(data, split), "the same value in all train rows")
    assert finding.where == "features 4, 5, 6"


@BOTH
def test_nan_and_infinity_are_errors_with_row_and_feature(healthy, make):
    data, split = healthy
    inputs = data.inputs.copy()
    inputs[3, 1], inputs[7, 1], inputs[7, 2] = np.nan, np.inf, -np.inf
    data = replace(data, inputs=make(inputs), features=("p", "q", "r", "s"))
    finding = only(feature_findings(data, split), "3 values are NaN or infinite")
    assert (finding.severity, finding.where) == ("error", "rows 4, 8; features q, r")


@BOTH
@pytest.mark.parametrize("first", [0, 1])
def test_row_numbers_among_the_features_are_found_measurements_are_not(healthy, make, first):
    data, split = healthy
    numbers = np.random.default_rng(1).permutation(30) + first
    inputs = np.column_stack([data.inputs, numbers, numbers % 29]).astype(np.float32)
    finding = only(feature_findings(replace(data, inputs=make(inputs)), split), "whole number")
    assert finding.where == "feature 4"


@pytest.mark.parametrize(
    ("make", "severity"), [(np.asarray, "note"), (sparse.csr_array, "warning")]
)
def test_uneven_ranges_are_told_and_only_dense_ones_are_scaled(healthy, make, severity):
    data, split = healthy
    spread = np.ptp(data.inputs[split.train], axis=0)
    even = (data.inputs / spread).astype(np.float32)
    for ratio, expected in ((0.99e4, []), (1.01e4, [severity])):
        inputs = make(even * np.array([1, ratio, 1, 1], dtype=np.float32))
        findings = feature_findings(replace(data, inputs=inputs), split)
        assert [finding.severity for finding in findings] == expected


def numbered(features: np.ndarray, targets: np.ndarray) -> MultiLabelData:
    labels = tuple(str(column) for column in range(targets.shape[1]))
    return make_data(sparse.csr_array(features.astype(np.float32)), targets, labels=labels)


def test_numbers_that_may_start_at_one_are_found():
    rng = np.random.default_rng(0)
    split = make_split(range(4), [4], [5])
    features, targets = rng.random((6, 5)), np.ones((6, 3), dtype=int)
    assert only_counting(numbered(features, targets), split) == []
    features[:, 0] = 0
    assert only_counting(numbered(features, targets), split) == ["feature number 0"]
    features[:, 2] = 0  # now 0 is one gap of several and proves nothing
    assert only_counting(numbered(features, targets), split) == []
    targets[:, 0] = 0
    assert only_counting(numbered(features, targets), split) == ["feature and label number 0"]


def only_counting(data: MultiLabelData, split: Split) -> list[str]:
    findings = feature_findings(data, split)
    return [f.what.partition(" is never")[0] for f in findings if "may count from 1" in f.what]


# Files and pictures -----------------------------------------------------------------------------


def test_another_order_in_the_xml_file_is_a_note():
    assert order_findings(["a", r"m\'u", "c"], ["a", "m'u", "c"]) == []
    [finding] = order_findings(["a", "b", "c"], ["a", "c", "b"])
    assert (finding.severity, finding.where) == (
        "note",
        "first at label 1, b by column and c by list",
    )


@pytest.mark.parametrize(
    ("labels", "where"),
    [
        (["l1", "l2", "l3"], []),
        (["l1", "l3"], ["attribute l2"]),
        (["l1", "l2"], ["attribute l3"]),
        (["f1"], []),
    ],
)
def test_attributes_among_the_labels_that_are_none(labels, where):
    findings = stray_findings(["f1", "f2", "l1", "l2", "l3"], labels)
    assert [finding.where for finding in findings] == where


def test_bars_are_logarithmic_ranked_and_show_one_row():
    lines = frequency_bars(np.array([0, 64, 1, 8]), width=10, height=1)
    assert lines[0] == f"{64:>9} │{BLOCKS[8]}{BLOCKS[4]}{BLOCKS[1]} "
    assert lines[-1].endswith("rank 1 to 4")


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=300), st.integers(1, 70))
def test_bars_never_rise_and_fit_the_width(counts, width):
    lines = frequency_bars(np.array(counts), width=width, height=3)
    columns = zip(*(line.partition("│")[2] for line in lines[:3]), strict=True)
    heights = [sum(BLOCKS.index(block) for block in column) for column in columns]
    assert len(heights) == min(width, len(counts))
    assert heights == sorted(heights, reverse=True)
    if len(counts) <= width:
        assert [height > 0 for height in heights] == [count > 0 for count in sorted(counts)[::-1]]


def test_pixels_that_no_mask_has_are_no_finding(healthy):
    data, split = healthy
    empty = np.zeros((data.n_rows, 2))
    empty[:, 0] = 1
    of_labels = make_data(data.inputs, empty)
    assert label_findings(of_labels, split)
    assert not label_findings(replace(of_labels, image=ImageShape(height=1, width=2)), split)
