"""Sections about several runs: means over seeds, beside the papers, learning, calibration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from train.compare_display import paper_rows, score_title
from train.display import SHOWN_RANKING_METRICS, SHOWN_SET_METRICS
from train.evidence import MASK_SCORES, Mean, Record, goodness, mean_score, record_of
from train.published import published
from train.report import figures
from train.report.calibration import calibration_table, of_run
from train.report.labels import change_tables, comparable
from train.report.masks import masks_of_runs
from train.report.runs import FinishedRun
from train.report.sections import Section, picture
from train.report.study import Study
from train.report.tables import Column, Row, Table

COMPARED = (
    "mean_iou",
    "global_iou",
    "pixel_accuracy",
    "example_f1",
    "micro_f1",
    "macro_f1",
    "subset_accuracy",
    "precision@1",
    "map_by_label",
)


def comparison_table(dataset: str, runs: Sequence[FinishedRun]) -> Table:
    """One row a run, the usual metrics of its test rows."""
    names = SHOWN_SET_METRICS | SHOWN_RANKING_METRICS
    first = "mean_iou" if runs[0].has_masks else "example_f1"
    rows = [
        [run.name, run.kind, run.checkpoint.seed, *(run.fixed.get(key) for key in COMPARED),
         run.metrics["scores"]["tuned"][first]]
        for run in runs
    ]  # fmt: skip
    return Table(
        f"test scores on {dataset}",
        [Column("run"), Column("method"), Column("seed", "d"),
         *(Column(names[key], ".4f") for key in COMPARED), Column(f"{names[first]}, tuned", ".4f")],
        rows,
        "test rows, threshold 0.5 but in the last column"
        if all(comparable(runs[0], run) for run in runs)
        else "test rows, threshold 0.5 but in the last column; the runs were tested on different "
        "rows, so small differences mean little",
    ).without_empty_columns()  # fmt: skip


def leaderboard_table(runs: Sequence[FinishedRun], scores: Sequence[str]) -> Table:
    """Mean and deviation over the seeds of each setting; the best of the first score first."""
    rows: list[Row] = []
    if runs[0].has_masks:
        scores = [score for score in MASK_SCORES if score.startswith("fixed.")]
    for members in by_setting([record_of(run.metrics) for run in runs]):
        first = members[0]
        seconds = sum(record.seconds for record in members) / len(members)
        rows.append(
            [first.method, first.changed or None, None if first.fraction == 1 else first.fraction,
             len(members), *(mean_score(members, score) for score in scores), seconds]
        )  # fmt: skip
    rows.sort(
        key=lambda row: goodness(row[4] if isinstance(row[4], Mean) else None, scores[0]),
        reverse=True,
    )
    return Table(
        "leaderboard",
        [Column("method"), Column("changed"), Column("share of the rows", "g"),
         Column("runs", "d"), *(Column(score_title(score), ".4f") for score in scores),
         Column("seconds", ",.1f")],
        rows,
        "test rows; mean ± standard deviation over seeds; changed: hyper-parameters other than "
        "those of the preset; seconds: training of one run",
    ).without_empty_columns()  # fmt: skip


def by_setting(records: Sequence[Record]) -> list[list[Record]]:
    """Records that differ in their seed alone, in the order in which settings first appear."""
    groups: dict[object, list[Record]] = {}
    for record in records:
        groups.setdefault((record.table, record.setting), []).append(record)
    return list(groups.values())


def paper_table(runs: Sequence[FinishedRun]) -> Table | None:
    """Runs of one data set with all training rows, beside what papers print; None if nothing."""
    records = [record_of(run.metrics) for run in runs]
    whole = [record for record in records if record.fraction == 1]
    rows, notes = paper_rows(whole, published(runs[0].dataset))
    if not rows:
        return None
    return Table(
        "beside the papers",
        [Column("method"), Column("score"), Column("ours", ".4f"), Column("paper", ".4f"),
         Column("difference", "+.4f"), Column("of")],
        [[row.method, score_title(row.score), row.ours,
          f"{row.paper}?" if row.is_doubtful else row.paper, row.ours.value - row.paper.value,
          row.source] for row in rows],
        "; ".join(notes) + "; ?: doubtful in its source",
    )  # fmt: skip


def comparison_section(
    dataset: str, runs: Sequence[FinishedRun], detailed: Sequence[FinishedRun],
    scores: Sequence[str], anchor: str,
) -> Section:  # fmt: skip
    """All runs of a data set; curves that would hide each other are drawn of the detailed ones."""
    section = Section(f"Runs on {dataset}", anchor)
    table = comparison_table(dataset, runs)
    if len(by_setting([record_of(run.metrics) for run in runs])) < len(runs):
        section.add(leaderboard_table(runs, scores))
        table = Table(table.title, table.columns, table.rows, table.note, folded=True)
    section.add(table, paper_table(runs))
    trained = [run for run in runs if run.history]
    if trained:
        section.add(picture(figures.validation_curves(trained), "learning, a line a run"))
    if runs[0].has_masks:
        section.add(picture(masks_of_runs(detailed), "the first test images, at 0.5"))
    bars = None if runs[0].has_masks else figures.slice_bars(detailed)
    if bars:
        section.add(picture(bars, "labels by their training rows"))
    curves = figures.reliability_curves({run.name: of_run(run).of_all_labels() for run in detailed})
    section.add(
        picture(curves, "all cells of the test rows; on the dotted line scores are shares"),
        calibration_table(detailed),
    )
    return section


def study_section(study: Study, anchor: str) -> Section:
    """Runs that differ in one setting."""
    section = Section(f"Study: {study.title}", anchor)
    curve = picture(figures.study_curves(study), "dots are runs, lines their means")
    section.add(curve, study.table())
    return section


def change_sections(runs: Sequence[FinishedRun]) -> list[Section]:
    """What runs gained and lost against the first of their data set."""
    sections = []
    for number, (before, after) in enumerate(_pairs_to_compare(runs)):
        title = f"{before.name} to {after.name}: gains and losses"
        section = Section(title, f"change-{number + 1}")
        section.add(*change_tables(before, after))
        sections.append(section)
    return sections


def _pairs_to_compare(runs: Sequence[FinishedRun]) -> Iterator[tuple[FinishedRun, FinishedRun]]:
    """The first `ce` run of a data set, or else its first run, with each of the others."""
    for dataset in dict.fromkeys(run.dataset for run in runs):
        group = [run for run in runs if run.dataset == dataset and not run.has_masks]
        if not group:
            continue
        base = next((run for run in group if run.checkpoint.method == "ce"), group[0])
        yield from ((base, run) for run in group if run is not base and comparable(base, run))
