"""Where a run is right and wrong: by label, by frequency, by size of label set; two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from train.data_display import SLICES
from train.doctor.rows import row_groups
from train.metrics import predict
from train.metrics.inputs import as_scores
from train.metrics.ranking import rank_rows
from train.metrics.sets import confusion
from train.report.runs import FinishedRun
from train.report.tables import Column, Row, Table

FREQUENCIES = (0, 1, 5, 10, 20, 50, 100, 500)
SET_SIZES = (0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 21, 31)
SHOWN_PAIRS, SHOWN_CHANGES, SHOWN_ROWS = 15, 10, 5
MAPPED_CONFUSIONS = 15


@dataclass(frozen=True)
class LabelScores:
    """One entry a label."""

    test_counts: NDArray[np.int64]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]
    """At threshold 0.5, like precision and recall."""
    own_f1: NDArray[np.float64]
    """At the label's own threshold."""
    average_precision: NDArray[np.float64]
    """NaN for labels without a test row."""


def label_scores(run: FinishedRun) -> LabelScores:
    """Score every label on the test rows."""
    fixed = confusion(run.predicted, run.true).by_label
    own = predict(run.test_scores, np.asarray(run.checkpoint.thresholds["per_label"]))
    precision = rank_rows(as_scores(run.test_scores), run.true).average_precision()
    return LabelScores(
        test_counts=fixed.true,
        precision=fixed.precision(),
        recall=fixed.recall(),
        f1=fixed.f1(),
        own_f1=confusion(own, run.true).by_label.f1(),
        average_precision=np.where(fixed.true > 0, precision, np.nan),
    )


def label_table(run: FinishedRun, scores: LabelScores) -> Table:
    """Every label, most frequent first."""
    order = np.argsort(-run.train_counts, kind="stable")
    thresholds = run.checkpoint.thresholds["per_label"]
    rows = [
        [
            run.checkpoint.labels[i], int(run.train_counts[i]), int(scores.test_counts[i]),
            float(scores.precision[i]), float(scores.recall[i]), float(scores.f1[i]),
            _number(scores.average_precision[i]), thresholds[i], float(scores.own_f1[i]),
        ]
        for i in order
    ]  # fmt: skip
    names = ("precision", "recall", "F1", "AP", "own threshold", "F1 at it")
    return Table(
        f"labels ({len(rows)})",
        [Column("label"), Column("train", ",d"), Column("test", ",d")]
        + [Column(name, ".3f") for name in names],
        rows,
        "train, test: rows with the label; precision, recall and F1 at threshold 0.5; "
        "own threshold: chosen on validation rows",
        folded=True,
    )


def slice_tables(run: FinishedRun) -> list[Table]:
    """Head, torso and tail labels by both definitions, with all labels first."""
    by_count = {
        "all labels": "",
        **{f"{name}: {rule}": f"_{name}" for name, rule in SLICES.items()},
    }
    by_quantile = {
        "all labels": "",
        "head: above 66 % of the labels": "_quantile_head",
        "torso: above 33 %": "_quantile_torso",
        "tail: the rest": "_quantile_tail",
    }
    recalls = {f"pair_recall@{k}": f"recall@{k}" for k in (1, 10, 50)}
    scores = {"macro_f1": "macro-F1", "map_by_label": "mAP", "balanced_error": "balanced error"}
    return [
        _slice_table(
            run, "slices by training rows", by_count, scores,
            "balanced error: share of a label's rows where another comes first, mean over labels",
        ),
        _slice_table(
            run, "slices by rank of frequency", by_quantile, recalls,
            "recall@k: share of (row, true label) pairs whose label is among the row's k best",
        ),
    ]  # fmt: skip


def _slice_table(
    run: FinishedRun, title: str, slices: dict[str, str], metrics: dict[str, str], note: str
) -> Table:
    rows: list[Row] = [
        [name, *(run.fixed.get(f"{key}{suffix}") for key in metrics)]
        for name, suffix in slices.items()
        if any(f"{key}{suffix}" in run.fixed for key in metrics)
    ]
    columns = [Column("labels"), *(Column(name, ".4f") for name in metrics.values())]
    return Table(title, columns, rows, note).without_empty_columns()


def frequency_table(run: FinishedRun, scores: LabelScores) -> Table:
    """Scores of labels that are about equally frequent."""
    rows: list[Row] = []
    for name, chosen in _buckets(run.train_counts, FREQUENCIES):
        precision = scores.average_precision[chosen]
        has_rows = ~np.isnan(precision)
        mean_precision = float(precision[has_rows].mean()) if has_rows.any() else None
        rows.append(
            [name, int(chosen.sum()), float(scores.f1[chosen].mean()),
             float(scores.own_f1[chosen].mean()), mean_precision]
        )  # fmt: skip
    return Table(
        "by training rows of the label",
        [Column("training rows"), Column("labels", ",d"), Column("macro-F1", ".4f"),
         Column("macro-F1 at own thresholds", ".4f"), Column("mAP", ".4f")],
        rows,
    )  # fmt: skip


def set_size_table(run: FinishedRun) -> Table:
    """Scores of rows with about equally many true labels."""
    rows: list[Row] = []
    by_row = confusion(run.predicted, run.true).by_row
    exact = (by_row.hits == by_row.true) & (by_row.hits == by_row.predicted)
    for name, chosen in _buckets(by_row.true, SET_SIZES):
        rows.append(
            [name, int(chosen.sum()), float(by_row.predicted[chosen].mean()),
             float(by_row.f1()[chosen].mean()), float(exact[chosen].mean())]
        )  # fmt: skip
    return Table(
        "by number of true labels of the row",
        [Column("true labels"), Column("test rows", ",d"), Column("predicted labels", ".2f"),
         Column("example-F1", ".4f"), Column("exactly right", ".1%")],
        rows,
    )  # fmt: skip


def label_set_table(run: FinishedRun) -> Table:
    """Whole label sets: known from training or new, and what becomes of them."""
    n_train, n_test = len(run.problem.train), len(run.problem.test)
    stacked = sparse.vstack([run.problem.train.targets, run.true, run.predicted]).tocsr()
    groups = row_groups(sparse.csr_array(stacked.astype(np.uint8)))
    known = np.isin(groups, groups[:n_train])
    true, predicted = np.split(np.arange(n_train, n_train + 2 * n_test), 2)
    by_row = confusion(run.predicted, run.true).by_row
    right = groups[true] == groups[predicted]
    empty = by_row.predicted == 0
    kinds = {
        "true set occurs in training": known[true],
        "true set is new": ~known[true],
        "predicted set occurs in training": known[predicted] & ~empty,
        "predicted set is new": ~known[predicted] & ~empty,
        "predicted set is empty": empty,
    }
    rows: list[Row] = [
        [name, int(mask.sum()), float(mask.mean()), _mean(by_row.f1(), mask), _mean(right, mask)]
        for name, mask in kinds.items()
    ]
    distinct = len(np.unique(groups[:n_train]))
    return Table(
        "label sets",
        [Column("label set of a test row"), Column("rows", ",d"), Column("share", ".1%"),
         Column("example-F1", ".4f"), Column("exactly right", ".1%")],
        rows,
        f"{distinct:,} different label sets in {n_train:,} training rows",
    )  # fmt: skip


@dataclass(frozen=True)
class Confused:
    """Labels that are taken for others most often, and how often for which of them."""

    labels: NDArray[np.int64]
    rows: NDArray[np.int64]
    """(labels, labels): test rows where the first is missed and the second predicted wrongly."""
    true: NDArray[np.int64]
    """(labels,): test rows that have each."""

    def shares(self) -> NDArray[np.float64]:
        """The same, of all test rows that have the first label."""
        return np.asarray(self.rows / np.maximum(self.true, 1)[:, None])


def confusions(run: FinishedRun) -> sparse.csr_array:
    """(labels, labels): test rows where the first is missed and the second predicted wrongly."""
    missed, wrong = _only(run.true, run.predicted), _only(run.predicted, run.true)
    return sparse.csr_array(missed.T @ wrong)


def most_confused(run: FinishedRun) -> Confused | None:
    """The labels with the most confusions, most frequent first; None where there are none."""
    counts = confusions(run)
    parts = np.asarray(counts.sum(axis=0)).ravel() + np.asarray(counts.sum(axis=1)).ravel()
    chosen = np.argsort(-parts, kind="stable")[:MAPPED_CONFUSIONS]
    chosen = chosen[parts[chosen] > 0]
    if not len(chosen):
        return None
    chosen = chosen[np.argsort(-run.train_counts[chosen], kind="stable")]
    true = np.asarray(run.true.sum(axis=0)).ravel()[chosen]
    return Confused(chosen, counts[chosen][:, chosen].toarray(), true.astype(np.int64))


def confusion_table(run: FinishedRun) -> Table:
    """Label pairs most often taken for each other: one missed and the other wrongly predicted."""
    confused = confusions(run).tocoo()
    together = _together(run.problem.train.targets)
    order = np.argsort(-confused.data, kind="stable")[:SHOWN_PAIRS]
    labels = run.checkpoint.labels
    true = np.asarray(run.true.sum(axis=0)).ravel()
    rows = [
        [labels[i], labels[k], int(n), float(n / true[i]), int(together[i, k])]
        for i, k, n in zip(
            confused.row[order], confused.col[order], confused.data[order], strict=True
        )
    ]
    return Table(
        "most confused pairs",
        [Column("missed"), Column("predicted wrongly"), Column("test rows", ",d"),
         Column("share of the missed label's", ".1%"), Column("training rows with both", ",d")],
        rows,
        folded=True,
    )  # fmt: skip


def comparable(one: FinishedRun, other: FinishedRun) -> bool:
    """Whether both were tested on the same rows of the same data set."""
    return one.dataset == other.dataset and np.array_equal(one.test_rows, other.test_rows)


def change_tables(before: FinishedRun, after: FinishedRun) -> list[Table]:
    """What the second run gained and lost against the first: labels, label pairs, rows."""
    return [
        _changed_labels(before, after),
        _changed_pairs(before, after),
        _changed_rows(before, after),
    ]


def _changed_labels(before: FinishedRun, after: FinishedRun) -> Table:
    one, two = (confusion(run.predicted, run.true).by_label for run in (before, after))
    change = two.f1() - one.f1()
    rows = [
        [before.checkpoint.labels[i], int(before.train_counts[i]), int(one.true[i]),
         float(one.f1()[i]), float(two.f1()[i]), float(change[i])]
        for i in _extremes(change, SHOWN_CHANGES)
    ]  # fmt: skip
    return Table(
        "labels that gained and lost most",
        [Column("label"), Column("train", ",d"), Column("test", ",d"),
         Column(f"F1 {before.name}", ".3f"), Column(f"F1 {after.name}", ".3f"),
         Column("change", "+.3f")],
        rows,
        f"{np.sum(change > 0)} labels gained, {np.sum(change < 0)} lost, "
        f"{np.sum(change == 0)} stayed as they were",
    )  # fmt: skip


def _changed_pairs(before: FinishedRun, after: FinishedRun) -> Table:
    """Pairs of true labels found together: where a method that knows label sets should gain."""
    found = [_together(run.predicted.multiply(run.true).tocsr()) for run in (before, after)]
    change = sparse.triu(found[1] - found[0], k=1).tocoo()
    true, train = _together(before.true), _together(before.problem.train.targets)
    labels = before.checkpoint.labels
    shown = _extremes(change.data, SHOWN_CHANGES)
    rows = [
        [labels[i], labels[k], int(train[i, k]), int(true[i, k]), int(found[0][i, k]),
         int(found[1][i, k]), int(n)]
        for i, k, n in zip(change.row[shown], change.col[shown], change.data[shown], strict=True)
    ]  # fmt: skip
    return Table(
        "pairs of labels found together",
        [Column("label"), Column("with"), Column("train", ",d"), Column("test", ",d"),
         Column(f"found by {before.name}", ",d"), Column(f"found by {after.name}", ",d"),
         Column("change", "+,d")],
        rows,
        "rows that have both labels; found: test rows of which both were predicted",
    )  # fmt: skip


def _changed_rows(before: FinishedRun, after: FinishedRun) -> Table:
    one, two = (confusion(run.predicted, run.true).by_row.f1() for run in (before, after))
    change = two - one

    def names(sets: sparse.csr_array, row: int) -> str:
        chosen = sets.indices[sets.indptr[row] : sets.indptr[row + 1]]
        return ", ".join(before.checkpoint.labels[i] for i in chosen) or "none"

    rows: list[Row] = [
        [int(before.test_rows[i]) + 1, float(change[i]), names(before.true, i),
         names(before.predicted, i), names(after.predicted, i)]
        for i in _extremes(change, SHOWN_ROWS)
    ]  # fmt: skip
    return Table(
        "rows that gained and lost most",
        [Column("row", "d"), Column("change of F1", "+.3f"), Column("true labels"),
         Column(f"by {before.name}"), Column(f"by {after.name}")],
        rows,
        f"{np.sum(change > 0)} rows gained, {np.sum(change < 0)} lost, "
        f"{np.sum(change == 0)} stayed as they were; rows are counted from 1",
        folded=True,
    )  # fmt: skip


def _buckets(
    values: NDArray[np.integer], starts: Sequence[int]
) -> list[tuple[str, NDArray[np.bool_]]]:
    """Name and members of each range of values that has any."""
    place = np.searchsorted(starts, values, side="right") - 1
    found = []
    for i, start in enumerate(starts):
        chosen = place == i
        if not chosen.any():
            continue
        end = starts[i + 1] - 1 if i + 1 < len(starts) else None
        name = f"{start} or more" if end is None else f"{start}" if end == start else ""
        found.append((name or f"{start} to {end}", chosen))
    return found


def _extremes(change: NDArray[np.number], most: int) -> NDArray[np.int64]:
    """The greatest gains, greatest first, then the greatest losses, greatest last."""
    order = np.argsort(-change, kind="stable")
    gains = order[change[order] > 0][:most]
    losses = order[change[order] < 0][-most:]
    return np.concatenate([gains, losses]).astype(np.int64)


def _only(one: sparse.csr_array, other: sparse.csr_array) -> sparse.csr_array:
    """Cells of the first that are not in the second, as integers that can be added up."""
    first = sparse.csr_array(one.astype(np.int64))
    rest = first - first.multiply(other.astype(np.int64))
    return sparse.csr_array(rest)


def _together(sets: sparse.csr_array) -> sparse.csr_array:
    """(labels, labels): rows that have both."""
    counts = sets.astype(np.int64)
    return sparse.csr_array(counts.T @ counts)


def _mean(values: NDArray[np.number] | NDArray[np.bool_], mask: NDArray[np.bool_]) -> float | None:
    return float(values[mask].mean()) if mask.any() else None


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
