"""The report: sections of tables and figures, and the page that shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
from markupsafe import Markup

from train.config import to_toml
from train.display import SHOWN_RANKING_METRICS, SHOWN_SET_METRICS
from train.report import figures
from train.report.costs import inference_table, parameter_table, training_table
from train.report.gradients import Summary, find_pairs, joint_term, summarise
from train.report.labels import (
    change_tables,
    comparable,
    confusion_table,
    frequency_table,
    label_scores,
    label_set_table,
    label_table,
    set_size_table,
    slice_tables,
)
from train.report.relations import agreement_table, label_maps, pair_tables
from train.report.representation import (
    USUAL_SHARE,
    cluster_scores,
    combination_ranks,
    pull_table,
    shown_rows,
)
from train.report.runs import FinishedRun
from train.report.study import Study, find_studies
from train.report.tables import Column, Table

GROUPS = {"fixed": "at 0.5", "tuned": "tuned", "per_label": "per label", "oracle": "oracle"}
COMPARED = ("example_f1", "micro_f1", "macro_f1", "subset_accuracy", "precision@1", "map_by_label")


@dataclass(frozen=True)
class Picture:
    """A figure, and what it shows."""

    svg: Markup
    caption: str


@dataclass(frozen=True)
class Text:
    """Words as they are, such as a command; or a paragraph."""

    text: str
    is_code: bool = False


@dataclass
class Section:
    """A heading with what stands below it."""

    title: str
    anchor: str
    level: int = 2
    parts: list[Table | Picture | Text] = field(default_factory=list)

    def add(self, *parts: Table | Picture | Text | None) -> None:
        """Append what there is."""
        self.parts += [part for part in parts if part is not None]


def make_sections(runs: Sequence[FinishedRun]) -> list[Section]:
    """Everything that can be said about these runs: across them first, then one by one."""
    sections = []
    datasets = list(dict.fromkeys(run.dataset for run in runs))
    for number, dataset in enumerate(datasets):
        group = [run for run in runs if run.dataset == dataset]
        if len(group) > 1:
            sections.append(_comparison(dataset, group, f"runs-{number + 1}"))
    for number, study in enumerate(find_studies(runs)):
        sections.append(_study(study, f"study-{number + 1}"))
    costs = Section("Costs", "costs")
    costs.add(parameter_table(runs), training_table(runs), inference_table(runs))
    sections.append(costs)
    for number, run in enumerate(runs):
        sections += _run_sections(run, f"run-{number + 1}")
    for number, (before, after) in enumerate(_pairs_to_compare(runs)):
        title = f"{before.name} to {after.name}: gains and losses"
        section = Section(title, f"change-{number + 1}")
        section.add(*change_tables(before, after))
        sections.append(section)
    return sections


def comparison_table(dataset: str, runs: Sequence[FinishedRun]) -> Table:
    """One row a run, the usual metrics of its test rows."""
    names = SHOWN_SET_METRICS | SHOWN_RANKING_METRICS
    rows = [
        [run.name, run.kind, run.checkpoint.seed, *(run.fixed.get(key) for key in COMPARED),
         run.metrics["scores"]["tuned"]["example_f1"]]
        for run in runs
    ]  # fmt: skip
    return Table(
        f"test scores on {dataset}",
        [Column("run"), Column("method"), Column("seed", "d"),
         *(Column(names[key], ".4f") for key in COMPARED), Column("example-F1, tuned", ".4f")],
        rows,
        "test rows, threshold 0.5 but in the last column"
        if all(comparable(runs[0], run) for run in runs)
        else "test rows, threshold 0.5 but in the last column; the runs were tested on different "
        "rows, so small differences mean little",
    ).without_empty_columns()  # fmt: skip


def _comparison(dataset: str, runs: Sequence[FinishedRun], anchor: str) -> Section:
    section = Section(f"Runs on {dataset}", anchor)
    section.add(comparison_table(dataset, runs))
    bars = figures.slice_bars(runs)
    if bars:
        section.add(Picture(Markup(bars), "labels by their training rows"))  # noqa: S704 - ours
    return section


def _study(study: Study, anchor: str) -> Section:
    section = Section(f"Study: {study.title}", anchor)
    curve = Markup(figures.study_curves(study))  # noqa: S704 - ours
    section.add(Picture(curve, "dots are runs, lines their means"), study.table())
    return section


def _pairs_to_compare(runs: Sequence[FinishedRun]) -> Iterator[tuple[FinishedRun, FinishedRun]]:
    """The first `ce` run of a data set, or else its first run, with each of the others."""
    for dataset in dict.fromkeys(run.dataset for run in runs):
        group = [run for run in runs if run.dataset == dataset]
        base = next((run for run in group if run.checkpoint.method == "ce"), group[0])
        yield from ((base, run) for run in group if run is not base and comparable(base, run))


def score_table(run: FinishedRun) -> Table:
    """Test scores under each way of choosing thresholds."""
    scores = run.metrics["scores"]
    names = SHOWN_SET_METRICS | SHOWN_RANKING_METRICS
    shown = [key for key in names if key in run.fixed]
    return Table(
        "test scores",
        [Column("metric"), *(Column(name, ".4f") for name in GROUPS.values())],
        [[names[key], *(scores[group].get(key) for group in GROUPS)] for key in shown],
        "tuned, per label: thresholds from validation rows; oracle: from the test rows themselves",
    )


def _run_sections(run: FinishedRun, anchor: str) -> list[Section]:
    return [
        _settings(run, anchor),
        _learning(run, anchor),
        _labels(run, anchor),
        _gradients(run, anchor),
        _label_maps(run, anchor),
        _representation(run, anchor),
    ]


def _epochs(run: FinishedRun) -> str:
    if not run.history:
        return ""
    return f"best epoch {run.checkpoint.epoch} of {run.metrics['epochs']}; "


def _settings(run: FinishedRun, anchor: str) -> Section:
    section = Section(f"{run.name}: {run.kind} on {run.dataset}", anchor)
    split, shape = run.metrics["split"], run.checkpoint.shape
    section.add(
        score_table(run),
        Text(
            f"{shape['n_features']:,} features, {shape['n_labels']:,} labels; {split['train']:,} "
            f"training, {split['validation']:,} validation and {split['test']:,} test rows (split "
            f"{split['rule']}); seed {run.checkpoint.seed}; {_epochs(run)}"
            f"{run.metrics['seconds']:,.1f} s of training."
        ),
        Text(run.metrics["command"], is_code=True),
        Text(to_toml(run.metrics["config"]).rstrip(), is_code=True),
        Text(", ".join(f"{name} {value}" for name, value in run.metrics["versions"].items())),
    )
    return section


def _learning(run: FinishedRun, anchor: str) -> Section:
    section = Section("Learning and thresholds", f"{anchor}-learning", level=3)
    if run.history:
        curves = Markup(figures.learning_curves(run))  # noqa: S704 - ours
        section.add(Picture(curves, "learning curves"))
    thresholds = Markup(figures.threshold_curves(run))  # noqa: S704 - ours
    section.add(
        Picture(
            thresholds,
            "one threshold for all labels; full line: 0.5, dotted line: "
            f"tuned on validation rows, {run.checkpoint.thresholds['tuned']:g}",
        ),
    )
    return section


def _labels(run: FinishedRun, anchor: str) -> Section:
    section = Section("Labels and label sets", f"{anchor}-labels", level=3)
    scores = label_scores(run)
    bars = figures.slice_bars([run])
    section.add(
        Picture(Markup(bars), "labels by their training rows") if bars else None,  # noqa: S704
        *slice_tables(run),
        frequency_table(run, scores),
        set_size_table(run),
        label_set_table(run),
        confusion_table(run),
        label_table(run, scores),
    )
    return section


def _label_maps(run: FinishedRun, anchor: str) -> Section:
    section = Section("Which labels are related", f"{anchor}-map", level=3)
    maps = label_maps(run)
    if not maps:
        section.add(Text(f"A {run.checkpoint.method} model holds no vector a label to compare."))
        return section
    section.add(agreement_table(maps))
    for (source, affinity), table in zip(maps.items(), pair_tables(run, maps), strict=True):
        picture = Markup(figures.label_map(run, source, affinity))  # noqa: S704 - ours
        section.add(Picture(picture, f"affinity of labels by {source}"), table)
    return section


def _representation(run: FinishedRun, anchor: str) -> Section:
    section = Section("Where the encoder puts the rows", f"{anchor}-rows", level=3)
    rows = shown_rows(run)
    vectors = run.embeddings(rows)
    if vectors is None:
        section.add(Text(f"A {run.checkpoint.method} model has no vector of a row to look at."))
        return section
    targets = run.true[rows]
    clusters = cluster_scores(vectors, combination_ranks(targets))
    section.add(clusters.table())
    if clusters.silhouette[-1] is not None:
        curves = Markup(figures.cluster_curves(clusters))  # noqa: S704 - ours
        section.add(Picture(curves, f"ABALONE's tables are of a share of {USUAL_SHARE:.0%}"))
    svg, share = figures.row_map(vectors, targets, run.checkpoint.labels)
    section.add(
        pull_table(vectors, targets),
        Picture(
            Markup(svg),  # noqa: S704 - ours
            f"{len(rows):,} test rows on the plane that holds the most of their variance "
            f"({share:.0%}); coloured: rows with one of the most frequent labels, grey: with "
            "several of these or none",
        ),
    )
    return section


def _gradients(run: FinishedRun, anchor: str) -> Section:
    section = Section("What the energy network believes", f"{anchor}-energy", level=3)
    term = joint_term(run.checkpoint)
    if term is None:
        section.add(Text(_why_no_energy_network(run)))
        return section
    pairs = find_pairs(run.checkpoint.labels, run.problem.train.targets)
    section.add(
        Text(
            "Gradient of the joint term of the score at label k, for label sets drawn evenly from "
            "[0, 1]. Where label i implies label k, a larger y of i should raise it; where they "
            "are unrelated it should not matter; under cross-entropy it never does."
        )
    )
    if len(pairs.implied) + len(pairs.unrelated):
        maps = Markup(figures.gradient_maps(term, pairs, run.checkpoint.labels))  # noqa: S704
        section.add(Picture(maps, f"the best supported pairs of each kind; {pairs.rule}"))
    summary = summarise(term, pairs)
    if summary is None:
        section.add(Text("Too few implied or unrelated pairs of labels for a numeric summary."))
    else:
        section.add(interaction_table(summary))
    return section


def _why_no_energy_network(run: FinishedRun) -> str:
    if run.checkpoint.method == "seal":
        return "This run is from before model.pt kept the loss-net: train it again to see it."
    return f"Method {run.checkpoint.method} has no energy network."


def interaction_table(summary: Summary) -> Table:
    """Mixed derivatives of implied against unrelated pairs."""
    low, high = summary.interval
    return Table(
        "mixed derivative of the score by a pair of labels",
        [Column("pairs"), Column("number", ",d"), Column("mean", "+.4g"),
         Column("share positive", ".1%")],
        [
            [name, len(values), float(values.mean()), float((values > 0).mean())]
            for name, values in (("implied", summary.implied), ("unrelated", summary.unrelated))
        ],
        f"difference of means {summary.difference:+.4g}, 95 % interval {low:+.4g} to {high:+.4g} "
        f"(bootstrap over pairs); p = {summary.p_value:.2g} that labels permuted at random differ "
        "as much in this direction",
    )  # fmt: skip


def render(sections: Sequence[Section], title: str) -> str:
    """The whole page as HTML that needs nothing else."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(sections=sections, title=title)
