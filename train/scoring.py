"""Judge a trained model: thresholds from validation rows, every metric on test rows."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from train.marking import BestMarks, span_metrics
from train.metrics import TopLabels, evaluate, evaluate_top, propensities
from train.metrics.inputs import LabelSets
from train.metrics.sets import confusion
from train.problem import Problem
from train.thresholds import (
    FIXED_THRESHOLD,
    MASK_METRICS,
    MPVAE_GRID,
    TUNABLE,
    Judged,
    metrics_by_threshold,
    oracle_metrics,
    per_label_thresholds,
    predicted,
    tuned_threshold,
)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a model scores, by how its thresholds were chosen.

    fixed: every metric on the test rows, labels predicted from 0.5 on.
    tuned: set metrics on the test rows, each at the one threshold best for it on validation.
    per_label: set metrics on the test rows, each label at its own threshold from validation.
    oracle: set metrics at thresholds chosen on the test rows themselves: optimistic, only for
        comparison with tables that were made so.
    validation: every metric on the validation rows at 0.5.
    """

    fixed: dict[str, float]
    tuned: dict[str, float]
    per_label: dict[str, float]
    oracle: dict[str, float]
    validation: dict[str, float]
    threshold: float
    """The one best for example-F1 on validation."""
    label_thresholds: np.ndarray
    """(labels,) float32."""


def judge(
    problem: Problem,
    validation: Judged | BestMarks,
    test: Judged | BestMarks,
    constants: tuple[float, float],
) -> Judgement:
    """Compute all columns from the scores of the validation and of the test rows.

    From the best labels of each row come the metrics that they are enough for; masks, and labels of
    words, have metrics of their own. constants: a and b of the propensity model behind PSP@k.
    """
    if isinstance(validation, BestMarks) or isinstance(test, BestMarks):
        return _judge_spans(problem, validation, test)
    if problem.shape.task == "segmentation":
        return _judge_masks(problem, validation, test)
    seen = problem.validation.targets
    true = problem.test.targets
    counts = np.asarray(problem.train.targets.sum(axis=0)).ravel()
    full_suite = functools.partial(
        evaluate_top if isinstance(test, TopLabels) else evaluate,
        thresholds=FIXED_THRESHOLD,
        train_counts=counts,
        propensity=propensities(counts, len(problem.train), *constants),
    )
    best = {metric: tuned_threshold(validation, seen, metric) for metric in TUNABLE}
    by_label = per_label_thresholds(validation, seen, fallback=best["example_f1"])
    return Judgement(
        fixed=full_suite(test, true),
        tuned={
            metric: float(metrics_by_threshold(test, true, [best[metric]])[metric][0])
            for metric in TUNABLE
        },
        per_label={
            metric: compute(confusion(predicted(test, by_label), true))
            for metric, compute in TUNABLE.items()
        },
        oracle={
            name.removeprefix("oracle_"): value
            for name, value in oracle_metrics(test, true).items()
        },
        validation=full_suite(validation, seen),
        threshold=best["example_f1"],
        label_thresholds=by_label,
    )


def _judge_masks(problem: Problem, validation: Judged, test: Judged) -> Judgement:
    """The metrics of masks. Pixels share one threshold, the best for mean image IoU."""
    seen, true = problem.validation.targets, problem.test.targets
    values = [mask_metrics(validation, seen, bound) for bound in MPVAE_GRID]
    best = max(
        zip(values, MPVAE_GRID, strict=True),
        key=lambda pair: (pair[0]["mean_iou"], -abs(pair[1] - FIXED_THRESHOLD)),
    )[1]
    tuned = mask_metrics(test, true, best)
    on_test = [mask_metrics(test, true, bound) for bound in MPVAE_GRID]
    return Judgement(
        fixed=mask_metrics(test, true, FIXED_THRESHOLD),
        tuned=tuned,
        per_label=tuned,
        oracle={name: max(metrics[name] for metrics in on_test) for name in MASK_METRICS},
        validation=mask_metrics(validation, seen, FIXED_THRESHOLD),
        threshold=float(np.float32(best)),
        label_thresholds=np.full(true.shape[1], best, np.float32),
    )


def _judge_spans(
    problem: Problem, validation: Judged | BestMarks, test: Judged | BestMarks
) -> Judgement:
    """The metrics of labels on words, which have no thresholds: the best one is taken."""
    columns = []
    for found, part in ((validation, problem.validation), (test, problem.test)):
        assert isinstance(found, BestMarks)  # noqa: S101 - both are, or none
        assert part.marks is not None  # noqa: S101 - words have them
        metrics = span_metrics(found.rows(), part.marks)
        constrained = span_metrics(found.constrained(part.marks.labels), part.marks)
        columns.append(metrics | {"constrained_span_f1": constrained["span_f1"]})
    return Judgement(
        fixed=columns[1],
        tuned={},
        per_label={},
        oracle={},
        validation=columns[0],
        threshold=FIXED_THRESHOLD,
        label_thresholds=np.full(problem.shape.n_labels, FIXED_THRESHOLD, np.float32),
    )


def mask_metrics(scores: Judged, targets: LabelSets, threshold: float) -> dict[str, float]:
    """Every metric of masks (rows, pixels) at one threshold."""
    counts = confusion(predicted(scores, threshold), targets)
    return {name: metric(counts) for name, metric in MASK_METRICS.items()}
