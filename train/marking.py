"""The labels that a predictor gives words, and what they are worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from train.batches import Rows, WordRows, scoring_order
from train.metrics.spans import core_role_violations, count_spans, total_spans
from train.problem import Marks

MONITOR = "span_f1"


@dataclass(frozen=True, kw_only=True)
class BestMarks:
    """The best label of each word that was not cut off."""

    rows: list[np.ndarray]
    """Label numbers, of each row (words,)."""


@torch.no_grad()
def best_marks(predictor: nn.Module, rows: Rows, n_labels: int, device: torch.device) -> BestMarks:
    """Score all rows of words; the first of equally good labels is taken."""
    assert isinstance(rows, WordRows)  # noqa: S101 - only those have labels on words
    was_training = predictor.training
    predictor.eval()
    found: list[np.ndarray] = [np.zeros(0, np.int64)] * len(rows)
    for index in scoring_order(rows):
        logits = predictor(rows.take(index))
        labels = logits.unflatten(1, (-1, n_labels)).argmax(-1).cpu().numpy()
        for row, best in zip(index.tolist(), labels, strict=True):
            found[row] = best[: len(rows.pieces[row].starts)]
    predictor.train(was_training)
    return BestMarks(rows=found)


def span_metrics(found: BestMarks, true: Marks) -> dict[str, float]:
    """Every metric of labels on words; `span_f1:ROLE` for each role that is true or found.

    A word that was cut off counts as found to be `O`.
    """
    names = np.array(true.labels, dtype=object)
    wanted = [names[row].tolist() for row in true.rows]
    guessed = [
        names[np.pad(row, (0, len(truth) - len(row)))].tolist()
        for row, truth in zip(found.rows, true.rows, strict=True)
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
    return span_metrics(found, true)["span_f1"]
