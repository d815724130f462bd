"""Labels of words: what they are worth, and words that were cut off."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_text import by_hand, tiny_shape, tiny_tokenizer, tiny_words
from torch import nn

from train.loop import validation_score
from train.marking import BestMarks, best_marks, span_metrics
from train.problem import EncodedTexts, Marks, make_problem
from train.texts import word_rows

LABELS = ("O", "B-ARG0", "B-ARG1", "B-V", "I-ARG0")


def test_metrics_of_rows_counted_by_hand():
    true = Marks(
        labels=LABELS, rows=[np.array([1, 4, 3, 2]), np.array([0, 3, 2, 0]), np.array([3, 1])]
    )
    found = [np.array([1, 4, 3, 2]), np.array([2, 3, 2, 0]), np.array([3])]  # the last word is cut
    metrics = span_metrics(found, true)
    # True: ARG0, ARG1 | ARG1 | ARG0. Found: both | ARG1 twice, one of them right | none.
    assert metrics["span_precision"] == pytest.approx(3 / 4)
    assert metrics["span_recall"] == pytest.approx(3 / 4)
    assert metrics["span_f1"] == pytest.approx(3 / 4)
    assert metrics["span_f1:ARG0"] == pytest.approx(2 / 3)
    assert metrics["span_f1:ARG1"] == pytest.approx(4 / 5)
    assert metrics["word_accuracy"] == pytest.approx(8 / 10)
    assert metrics["core_role_violations"] == pytest.approx(1 / 3)
    assert "span_f1:V" not in metrics


def test_constrained_labels_keep_one_span_of_a_core_role():
    scores = np.full((3, len(LABELS)), 0.1, np.float32)
    scores[0, 1], scores[1, 3], scores[2, 1] = 0.8, 0.9, 0.6
    found = BestMarks(scores=[scores])
    assert found.rows()[0].tolist() == [1, 3, 1]
    assert found.constrained(LABELS)[0].tolist()[:2] == [1, 3]
    assert found.constrained(LABELS)[0][2] != 1


class Oracle(nn.Module):
    """Gives the words of each row the labels that it looks up by the row's tokens."""

    def __init__(self, part, n_labels: int) -> None:
        super().__init__()
        self.n_labels = n_labels
        self.known = {
            (*pieces.ids.tolist(), *pieces.marked.tolist()): marks
            for pieces, marks in zip(part.x.pieces, part.marks.rows, strict=True)
        }

    def forward(self, x) -> torch.Tensor:
        logits = torch.full((*x.word_pieces.shape, self.n_labels), -5.0)
        for row in range(len(x)):
            count = int(x.attention_mask[row].sum())
            key = (*x.input_ids[row, :count].tolist(), *x.predicate_mask[row, :count].tolist())
            for word in range(int((x.word_pieces[row] > 0).sum())):
                logits[row, word, self.known[key][word]] = 5.0
        return logits.flatten(1)


@pytest.mark.parametrize("max_tokens", [32, 5])
def test_a_perfect_predictor_misses_nothing_but_what_is_cut_off(max_tokens):
    data, cpu = tiny_words(), torch.device("cpu")
    rows = word_rows(data.words.rows, tiny_tokenizer().to_str(), max_tokens, cpu)
    texts = EncodedTexts(rows=rows, saved={}, encoder=tiny_shape())
    part = make_problem(data, by_hand(), cpu, texts=texts).validation
    score = validation_score(Oracle(part, data.n_labels), part, cpu, "span_f1")
    if max_tokens == 32:
        assert score == 1
        found = best_marks(Oracle(part, data.n_labels), part.x, data.n_labels, cpu)
        for row, true in zip(found.rows(), part.marks.rows, strict=True):
            assert np.array_equal(row, true)
    else:
        assert 0 < score < 1
