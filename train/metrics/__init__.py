"""Metrics of multi-label predictions in numpy: sets, rankings, the k best, slices, calibration.

`evaluate` computes all of them in one pass. Higher is better except for Hamming, coverage, ranking,
balanced and calibration errors. Targets are CSR or dense 0/1, rows x labels; scores are compared in
float32; ties go to the lower label or row unless a metric says otherwise.
"""

from __future__ import annotations

from train.metrics.at_k import (
    ndcg_at_k,
    pair_recall_at_k,
    precision_at_k,
    psp_at_k,
    recall_at_k,
)
from train.metrics.calibration import calibration_error
from train.metrics.order import top_k
from train.metrics.propensity import propensities
from train.metrics.ranking import (
    balanced_error,
    coverage_error,
    lrap,
    map_by_label,
    map_by_row,
    ranking_loss,
)
from train.metrics.sets import (
    example_f1,
    global_iou,
    hamming_accuracy,
    hamming_loss,
    macro_f1,
    macro_precision,
    macro_recall,
    mean_iou,
    micro_f1,
    micro_precision,
    micro_recall,
    predict,
    subset_accuracy,
)
from train.metrics.slices import slices_by_count, slices_by_quantile
from train.metrics.suite import evaluate
from train.metrics.top_labels import TopLabels, evaluate_top

__all__ = [
    "TopLabels",
    "balanced_error",
    "calibration_error",
    "coverage_error",
    "evaluate",
    "evaluate_top",
    "example_f1",
    "global_iou",
    "hamming_accuracy",
    "hamming_loss",
    "lrap",
    "macro_f1",
    "macro_precision",
    "macro_recall",
    "map_by_label",
    "map_by_row",
    "mean_iou",
    "micro_f1",
    "micro_precision",
    "micro_recall",
    "ndcg_at_k",
    "pair_recall_at_k",
    "precision_at_k",
    "predict",
    "propensities",
    "psp_at_k",
    "ranking_loss",
    "recall_at_k",
    "slices_by_count",
    "slices_by_quantile",
    "subset_accuracy",
    "top_k",
]
