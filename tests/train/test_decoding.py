"""Decoding under the rules of spans: the likeliest of all allowed paths, found by trying all."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from train.decoding import constrained_marks
from train.metrics.spans import core_role_violations
from train.spans import spans_of

LABELS = ("O", "B-A0", "I-A0", "B-A1", "I-A1", "B-TMP", "I-TMP", "B-V")


def is_allowed(marks: list[str]) -> bool:
    for before, mark in zip(["O", *marks], marks, strict=False):
        if mark.startswith("I-") and before not in (mark, f"B-{mark[2:]}"):
            return False
    return core_role_violations([marks]) == 0


def by_trying_all(probabilities: np.ndarray) -> np.ndarray:
    paths = itertools.product(range(len(LABELS)), repeat=len(probabilities))
    allowed = (path for path in paths if is_allowed([LABELS[label] for label in path]))
    logs = np.log(probabilities)
    return np.array(max(allowed, key=lambda path: sum(logs[n, m] for n, m in enumerate(path))))


@pytest.mark.parametrize("seed", range(12))
def test_no_allowed_path_is_likelier(seed):
    rng = np.random.default_rng(seed)
    odds = rng.normal(size=(4, len(LABELS))) + 2 * np.eye(len(LABELS))[rng.choice([1, 2, 3], 4)]
    probabilities = (np.exp(odds) / np.exp(odds).sum(1, keepdims=True)).astype(np.float32)
    found = constrained_marks(probabilities, LABELS)
    np.testing.assert_array_equal(found, by_trying_all(probabilities))


def test_the_best_labels_stay_where_they_keep_the_rules():
    marks = ["B-A0", "I-A0", "B-V", "B-A1", "I-A1", "B-TMP", "B-TMP", "O"]
    probabilities = np.full((len(marks), len(LABELS)), 0.01, np.float32)
    for word, mark in enumerate(marks):
        probabilities[word, LABELS.index(mark)] = 0.9
    found = [LABELS[label] for label in constrained_marks(probabilities, LABELS)]
    assert found == marks


def test_a_second_core_span_goes_where_it_costs_least():
    probabilities = np.full((3, len(LABELS)), 0.01, np.float32)
    for word, confidence in enumerate((0.9, 0.5, 0.8)):
        probabilities[word, LABELS.index("B-A0" if word != 1 else "B-V")] = confidence
    probabilities[2, LABELS.index("B-A1")] = 0.15
    found = [LABELS[label] for label in constrained_marks(probabilities, LABELS)]
    assert found == ["B-A0", "B-V", "B-A1"]


def test_rows_may_be_empty_long_and_sure():
    assert len(constrained_marks(np.zeros((0, len(LABELS)), np.float32), LABELS)) == 0
    sure = np.zeros((200, len(LABELS)), np.float32)
    sure[:, LABELS.index("B-A1")] = 1.0  # all others impossible, and only one may stay
    found = [LABELS[label] for label in constrained_marks(sure, LABELS)]
    assert sum(role == "A1" for role, _, _ in spans_of(found)) == 1
    assert is_allowed(found)
