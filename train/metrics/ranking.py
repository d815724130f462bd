"""Ranking metrics over whole rankings: average precision, LRAP, coverage, ranking loss.

Ties: average precision ranks deterministically (higher score first, then lower label, or lower row
for `map_by_label`); scikit-learn's `average_precision_score` groups tied scores instead, so the two
differ on ties only. LRAP, coverage error and ranking loss follow scikit-learn, where ties share the
worst rank. Scores may be any numbers: only their order counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from train.errors import DataError
from train.metrics.inputs import (
    Ints,
    LabelSets,
    Scores,
    as_label_sets,
    as_scores,
    cell_numbers,
    check_any_positive,
    check_same_shape,
)
from train.metrics.order import RankedPositives, rank_positives
from train.metrics.sets import ratio


def lrap(scores: NDArray[np.floating], targets: LabelSets) -> float:
    """Label ranking average precision; a row without labels counts 1, as in scikit-learn."""
    return lrap_of(_rank_labels(scores, targets))


def coverage_error(scores: NDArray[np.floating], targets: LabelSets) -> float:
    """How many labels must be read, best first, to meet all true ones; mean over rows.

    A row without labels needs 0. One more than the coverage of Tsoumakas et al. (2010), like
    scikit-learn's.
    """
    return coverage_error_of(*_checked(scores, targets))


def ranking_loss(scores: NDArray[np.floating], targets: LabelSets) -> float:
    """Share of (true, false) label pairs of a row in the wrong order or tied; mean over rows.

    Rows with no label or with all labels have no pairs and count 0, as in scikit-learn.
    """
    return ranking_loss_of(_rank_labels(scores, targets))


def map_by_row(scores: NDArray[np.floating], targets: LabelSets) -> float:
    """Average precision of each row's ranking of labels, mean over rows that have a label.

    Known as mAP@sample. In [0, 1].
    """
    matrix, true = _checked(scores, targets)
    check_any_positive(true, "map_by_row")
    return mean_average_precision_of(rank_positives(matrix, true))


def map_by_label(scores: NDArray[np.floating], targets: LabelSets) -> float:
    """Average precision of each label's ranking of rows, mean over labels that have a row.

    Known as mAP@class. In [0, 1].
    """
    matrix, true = _checked(scores, targets)
    check_any_positive(true, "map_by_label")
    return mean_average_precision_of(rank_rows(matrix, true))


def balanced_error(predicted: Ints, true: Ints) -> float:
    """Error rate of each label, mean over the labels present in `true`; one label a row.

    predicted, true: (rows,) label numbers.
    """
    predicted, true = np.asarray(predicted), np.asarray(true)
    if predicted.shape != true.shape or true.ndim != 1 or not true.size:
        raise DataError(
            "balanced_error needs one predicted and one true label for each of at least one row, "
            f"got shapes {predicted.shape} and {true.shape}"
        )
    _, label = np.unique(true, return_inverse=True)
    return float(np.mean(np.bincount(label, weights=predicted != true) / np.bincount(label)))


def rank_rows(scores: Scores, targets: sparse.csr_array) -> RankedPositives:
    """Rank the rows of each label: the groups are labels, ties go to the lower row."""
    return rank_positives(scores.T, targets.T.tocsr())


def lrap_of(ranked: RankedPositives) -> float:
    """LRAP of rankings already made."""
    precision = ranked.group_sums(ranked.tied_hits / ranked.tied_rank)
    return float(np.where(ranked.positives, ratio(precision, ranked.positives), 1.0).mean())


def coverage_error_of(scores: Scores, targets: sparse.csr_array) -> float:
    """Coverage error of inputs already checked; counting needs no sort."""
    has_label = np.diff(targets.indptr) > 0
    if not has_label.any():
        return 0.0
    true_scores = scores.reshape(-1)[cell_numbers(targets)]
    lowest = np.minimum.reduceat(true_scores, targets.indptr[:-1][has_label])
    needed = scores[has_label] >= lowest[:, None]
    return float(np.count_nonzero(needed) / len(scores))


def ranking_loss_of(ranked: RankedPositives) -> float:
    """Ranking loss of rankings already made."""
    wrong_pairs = ranked.group_sums(ranked.tied_rank - ranked.tied_hits)
    pairs = ranked.positives * (ranked.n_items - ranked.positives)
    return float(ratio(wrong_pairs, pairs).mean())


def mean_average_precision_of(ranked: RankedPositives) -> float:
    """Mean average precision of rankings already made, over groups that have a positive."""
    return float(ranked.average_precision()[ranked.positives > 0].mean())


def _rank_labels(scores: NDArray[np.floating], targets: LabelSets) -> RankedPositives:
    return rank_positives(*_checked(scores, targets))


def _checked(scores: NDArray[np.floating], targets: LabelSets) -> tuple[Scores, sparse.csr_array]:
    matrix, true = as_scores(scores), as_label_sets(targets, "targets")
    check_same_shape(matrix.shape, true, "scores")
    return matrix, true
