"""The report: sections of tables and figures, and the page that shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from train.compare_display import DEFAULT_SCORES
from train.config import TEXT_OPTIONS, to_toml
from train.display import SHOWN_RANKING_METRICS, SHOWN_SET_METRICS
from train.report import figures
from train.report.across import (
    change_sections,
    comparison_section,
    paper_table,
    study_section,
)
from train.report.calibration import calibration_table, label_calibration_table, of_run
from train.report.costs import inference_table, parameter_table, training_table
from train.report.gradients import Summary, find_pairs, joint_term, summarise
from train.report.labels import (
    confusion_table,
    frequency_table,
    label_scores,
    label_set_table,
    label_table,
    most_confused,
    set_size_table,
    slice_tables,
)
from train.report.masks import mask_threshold_curves, masks_of_runs
from train.report.relations import agreement_table, label_maps, pair_tables
from train.report.representation import (
    USUAL_SHARE,
    cluster_scores,
    combination_ranks,
    pull_table,
    shown_rows,
)
from train.report.runs import FinishedRun
from train.report.sections import Section, Text, picture
from train.report.study import find_studies
from train.report.tables import Column, Row, Table

GROUPS = {"fixed": "at 0.5", "tuned": "tuned", "per_label": "per label", "oracle": "oracle"}


def make_sections(
    runs: Sequence[FinishedRun],
    detailed: Sequence[FinishedRun] | None = None,
    scores: Sequence[str] = DEFAULT_SCORES,
) -> list[Section]:
    """Everything that can be said about these runs: across them first, then one by one.

    detailed: those that have sections of their own; all unless told.
    """
    detailed = runs if detailed is None else detailed
    sections = []
    for number, dataset in enumerate(dict.fromkeys(run.dataset for run in runs)):
        group, own = ([run for run in some if run.dataset == dataset] for some in (runs, detailed))
        if len(group) > 1:
            anchor = f"runs-{number + 1}"
            sections.append(comparison_section(dataset, group, own, scores, anchor))
    for number, study in enumerate(find_studies(runs)):
        sections.append(study_section(study, f"study-{number + 1}"))
    costs = Section("Costs", "costs")
    costs.add(parameter_table(detailed), training_table(detailed), inference_table(detailed))
    sections.append(costs)
    for number, run in enumerate(detailed):
        sections += _run_sections(run, f"run-{number + 1}")
    return sections + change_sections(detailed)


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
    if run.has_masks:
        return [_settings(run, anchor), _learning(run, anchor), _calibration(run, anchor),
                _masks(run, anchor)]  # fmt: skip
    return [
        _settings(run, anchor),
        _learning(run, anchor),
        _calibration(run, anchor),
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
    split = run.metrics["split"]
    section.add(
        score_table(run),
        paper_table([run]),
        Text(
            f"{_sizes(run)}; {split['train']:,} training, {split['validation']:,} validation and "
            f"{split['test']:,} test rows (split {split['rule']}); seed {run.checkpoint.seed}; "
            f"{_epochs(run)}"
            f"{run.metrics['seconds']:,.1f} s of training."
        ),
        Text(run.metrics["command"], is_code=True),
        Text(to_toml(_used_settings(run)).rstrip(), is_code=True),
        environment_table(run),
    )
    return section


def _sizes(run: FinishedRun) -> str:
    image, shape = run.data.image, run.checkpoint.shape
    if image is not None:
        return f"images of {image.height} x {image.width} pixels"
    return f"{shape['n_features']:,} features, {shape['n_labels']:,} labels"


def _used_settings(run: FinishedRun) -> dict[str, Any]:
    unused = TEXT_OPTIONS if run.checkpoint.text is None else ()
    return {name: value for name, value in run.metrics["config"].items() if name not in unused}


def environment_table(run: FinishedRun) -> Table:
    """Which program made the run, on what; early runs did not say all of it."""
    machine = run.metrics.get("machine", {})
    rows: list[Row] = [
        ["commit", run.metrics.get("commit") or "unknown"],
        ["versions", _listed(run.metrics["versions"])],
        ["machine", _listed(machine) or "unknown"],
        ["seed", str(run.checkpoint.seed)],
    ]
    return Table("environment", [Column("what"), Column("value")], rows, folded=True)


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _learning(run: FinishedRun, anchor: str) -> Section:
    section = Section("Learning and thresholds", f"{anchor}-learning", level=3)
    if run.history:
        section.add(picture(figures.learning_curves(run), "learning curves"))
    if run.has_masks:
        curves = mask_threshold_curves(run)
        section.add(picture(curves, "line: 0.5; dots: the best threshold for validation images"))
        return section
    section.add(
        picture(
            figures.threshold_curves(run),
            "one threshold for all labels; line: 0.5; dots: each metric at the threshold best for "
            f"it on validation rows, {run.checkpoint.thresholds['tuned']:g} for example-F1",
        ),
    )
    return section


def _calibration(run: FinishedRun, anchor: str) -> Section:
    section = Section("Calibration", f"{anchor}-calibration", level=3)
    curve = figures.reliability_curves({run.name: of_run(run).of_all_labels()})
    section.add(
        picture(curve, "all cells of the test rows; on the dotted line scores are shares"),
        calibration_table([run]),
        label_calibration_table(run),
    )
    return section


def _labels(run: FinishedRun, anchor: str) -> Section:
    section = Section("Labels and label sets", f"{anchor}-labels", level=3)
    scores, confused = label_scores(run), most_confused(run)
    bars = figures.slice_bars([run])
    section.add(
        picture(bars, "labels by their training rows") if bars else None,
        *slice_tables(run),
        frequency_table(run, scores),
        set_size_table(run),
        label_set_table(run),
        picture(
            figures.confusion_map(confused, run.checkpoint.labels),
            "test rows where one label is missed and another predicted wrongly, of the labels "
            "with the most such rows",
        )
        if confused
        else None,
        confusion_table(run),
        label_table(run, scores),
    )
    return section


def _masks(run: FinishedRun, anchor: str) -> Section:
    section = Section("Masks", f"{anchor}-masks", level=3)
    section.add(picture(masks_of_runs([run]), "the first test images, at 0.5"))
    return section


def _label_maps(run: FinishedRun, anchor: str) -> Section:
    section = Section("Which labels are related", f"{anchor}-map", level=3)
    maps = label_maps(run)
    if not maps:
        section.add(Text(f"A {run.checkpoint.method} model holds no vector a label to compare."))
        return section
    section.add(agreement_table(maps))
    for (source, affinity), table in zip(maps.items(), pair_tables(run, maps), strict=True):
        drawn = figures.label_map(run, source, affinity)
        section.add(picture(drawn, f"affinity of labels by {source}"), table)
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
        curves = figures.cluster_curves(clusters)
        section.add(picture(curves, f"ABALONE's tables are of a share of {USUAL_SHARE:.0%}"))
    svg, share = figures.row_map(vectors, targets, run.checkpoint.labels)
    section.add(
        pull_table(vectors, targets),
        picture(
            svg,
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
        maps = figures.gradient_maps(term, pairs, run.checkpoint.labels)
        section.add(picture(maps, f"the best supported pairs of each kind; {pairs.rule}"))
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
