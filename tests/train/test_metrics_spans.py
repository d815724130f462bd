"""Spans against the definition of a span, quantified over all possible ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.errors import DataError
from train.metrics.spans import SpanCounts, core_role_violations, count_spans, total_spans
from train.spans import spans_of

ROLES = ("ARG0", "ARG1", "ARGM-TMP", "C-ARG1", "V")
MARKS = ["O", *(f"{kind}-{role}" for kind in "BI" for role in ROLES)]
rows = st.lists(st.sampled_from(MARKS), max_size=7)

# Precision, recall and F1 of the sample by seqeval 1.2.2, which counts as conlleval does.
SAMPLE = Path(__file__).with_name("spans_sample.txt")
BY_SEQEVAL = {
    "ARG0": (0.606061, 0.714286, 0.655738),
    "ARG1": (0.388889, 0.700000, 0.500000),
    "ARG2": (0.560000, 0.636364, 0.595745),
    "ARGM-TMP": (0.600000, 0.642857, 0.620690),
    "C-ARG1": (0.526316, 0.625000, 0.571429),
    "R-ARG0": (0.454545, 0.750000, 0.566038),
    "V": (0.590909, 0.722222, 0.650000),
}
ALL_BY_SEQEVAL = (0.519126, 0.688406, 0.591900)


def test_a_sample_is_counted_as_an_independent_program_does():
    marks = [
        [line.split() for line in row.splitlines()] for row in SAMPLE.read_text().split("\n\n")
    ]
    true, guess = ([[word[place] for word in row] for row in marks] for place in (0, 1))
    by_role = count_spans(guess, true, ignore=())
    assert by_role.keys() == BY_SEQEVAL.keys()
    for role, counts in by_role.items():
        assert (counts.precision, counts.recall, counts.f1) == pytest.approx(
            BY_SEQEVAL[role], abs=1e-6
        )
    total = total_spans(by_role)
    assert (total.precision, total.recall, total.f1) == pytest.approx(ALL_BY_SEQEVAL, abs=1e-6)


def role_at(marks, place):
    return marks[place][2:] if 0 <= place < len(marks) else ""


def is_span(marks, role, first, last) -> bool:
    """By the words of conlleval's rules, for every candidate by itself."""
    begins = marks[first] == f"B-{role}" or (
        marks[first] == f"I-{role}" and role_at(marks, first - 1) != role
    )
    goes_on = all(marks[place] == f"I-{role}" for place in range(first + 1, last + 1))
    ends = last + 1 == len(marks) or marks[last + 1] != f"I-{role}"
    return begins and goes_on and ends


def slow_spans(marks) -> set:
    return {
        (role, first, last)
        for role in ROLES
        for first in range(len(marks))
        for last in range(first, len(marks))
        if is_span(marks, role, first, last)
    }


@given(rows)
def test_spans_are_those_of_the_definition(marks):
    found = list(spans_of(marks))
    assert set(found) == slow_spans(marks)
    assert found == sorted(found, key=lambda span: span[1])


@given(st.lists(rows, min_size=1, max_size=4), st.data())
def test_counts_are_those_of_a_slow_count(true, data):
    guess = [
        data.draw(st.lists(st.sampled_from(MARKS), min_size=len(r), max_size=len(r))) for r in true
    ]
    by_role = count_spans(guess, true)
    for role in ROLES:
        ours = [{s for s in slow_spans(r) if s[0] == role} for r in guess]
        theirs = [{s for s in slow_spans(r) if s[0] == role} for r in true]
        expected = SpanCounts(
            sum(len(a & b) for a, b in zip(ours, theirs, strict=True)),
            sum(map(len, ours)),
            sum(map(len, theirs)),
        )
        assert role != "V" or "V" not in by_role
        if role != "V" and (expected.predicted or expected.true):
            assert by_role[role] == expected
    total = total_spans(by_role)
    assert total.predicted == sum(c.predicted for c in by_role.values())


@given(st.lists(rows, min_size=1, max_size=5))
def test_violations_are_those_of_a_brute_force_count(some):
    wrong = 0
    for marks in some:
        core = [s[0] for s in slow_spans(marks) if s[0] in ("ARG0", "ARG1")]
        wrong += len(core) != len(set(core))
    assert core_role_violations(some) == wrong / len(some)


def test_an_example_of_conlleval():
    true = ["B-ARG0", "I-ARG0", "B-V", "B-ARG1", "I-ARG1", "O"]
    guess = ["B-ARG0", "I-ARG0", "B-V", "B-ARG1", "O", "I-ARG1"]
    total = total_spans(count_spans([guess], [true]))
    assert (total.hits, total.predicted, total.true) == (1, 3, 2)
    assert total.precision == pytest.approx(1 / 3)
    assert total.recall == 0.5
    assert total.f1 == pytest.approx(0.4)
    assert core_role_violations([guess, true]) == 0.5


@pytest.mark.parametrize("mark", ["", "B", "X-ARG0", "B-", "O-ARG0"])
def test_other_marks_are_refused(mark):
    with pytest.raises(DataError, match="must be O, B-ROLE or I-ROLE"):
        list(spans_of(["O", mark]))


def test_rows_must_have_equal_lengths():
    with pytest.raises(DataError, match="2 words has 1 predicted"):
        count_spans([["O"]], [["O", "O"]])
