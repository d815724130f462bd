"""The labels that a predictor gives words, and what they are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from train.batches import Rows, WordRows, scoring_order
from train.decoding import constrained_marks
from train.metrics.spans import core_role_violations, count_spans, total_spans
from train.problem import Marks

MONITOR = "span_f1"


@dataclass(frozen=True, kw_only=True)
class BestMarks:
    """What was found of each word that was not cut off."""

    scores: list[np.ndarray]
    """Probabilities of the labels, of each row (words, labels)."""

    def rows(self) -> list[np.ndarray]:
        """Label numbers, of each row (words,): the first of the best labels."""
        return [scores.argmax(1) for scores in self.scores]

    def constrained(self, labels: Sequence[str]) -> list[np.ndarray]:
        """The same under the rules of spans, see `train.decoding`."""
        return [constrained_marks(scores, labels) for scores in self.scores]


@torch.no_grad()
def best_marks(predictor: nn.Module, rows: Rows, n_labels: int, device: torch.device) -> BestMarks:
    """Score all rows of words."""
    assert isinstance(rows, WordRows)  # noqa: S101 - only those have labels on words
    was_training = predictor.training
    predictor.eval()
    found: list[np.ndarray] = [np.zeros((0, n_labels), np.float32)] * len(rows)
    for index in scoring_order(rows):
        logits = predictor(rows.take(index))
        scores = logits.unflatten(1, (-1, n_labels)).sigmoid().cpu().numpy()
        for row, of_words in zip(index.tolist(), scores, strict=True):
            found[row] = of_words[: len(rows.pieces[row].starts)].copy()
    predictor.train(was_training)
    return BestMarks(scores=found)


def span_metrics(found: Sequence[np.ndarray], true: Marks) -> dict[str, float]:
    """Every metric of labels on words; `span_f1:ROLE` for each role that is true or found.

    found: label numbers, of each row (words,). A word that was cut off counts as found to be `O`.
    """
    names = np.array(true.labels, dtype=object)
    wanted = [names[row].tolist() for row in true.rows]
    guessed = [
        names[np.pad(row, (0, len(truth) - len(row)))].tolist()
        for row, truth in zip(found, true.rows, strict=True)
    ]
    by_role = count_spans(guessed, wanted)
    total = total_spans(by_role)
    right = [np.equal(a, b) for a, b in zip(guessed, wanted, strict=True)]
    return {
        "span_f1": total.f1,
        "span_precision": total.precision,
        "span_recall": total.recall,
        "word_accuracy": float(np.concatenate(right).mean()),
        "core_role_violations": core_role_violations(guessed),
        **{f"span_f1:{role}": counts.f1 for role, counts in by_role.items()},
    }


def span_f1(found: BestMarks, true: Marks) -> float:
    """What the best epoch is chosen by."""
    return span_metrics(found.rows(), true)["span_f1"]
