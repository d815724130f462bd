"""`python -m train report` on small real runs: what it says is true, and the page stands alone."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from train import metrics
from train.checkpoint import load_checkpoint, save_checkpoint
from train.cli import main
from train.report import labels as label_reports
from train.report.across import leaderboard_table, paper_table
from train.report.calibration import BINS, calibration_table, label_calibration_table, of_run
from train.report.costs import PUBLISHED, count_parameters, parameter_table, training_table
from train.report.page import Section, make_sections, render
from train.report.relations import label_maps
from train.report.runs import FinishedRun, load_runs
from train.report.study import find_studies
from train.report.tables import Column, Table

RUNS = {
    "ce": ["ce"],
    "k2": ["seal", "--samples", "2", "--global-units", "5"],
    "k4": ["seal", "--samples", "4", "--global-units", "5"],
    "spen": ["spen", "--global-units", "5", "--inference-steps", "2"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small finished runs."""
    home = tmp_path_factory.mktemp("runs")
    for name, words in RUNS.items():
        common = ["--dataset", "demo", "--hidden", "30", "--lr", "0.01", "--epochs", "3"]
        assert main([*words, *common, "--out", str(home / name), "--no-progress"]) == 0
    return home


@pytest.fixture(scope="module")
def runs(home: Path) -> dict[str, FinishedRun]:
    return {run.name: run for run in load_runs([home / name for name in RUNS])}


@pytest.fixture
def copy(home: Path, tmp_path: Path) -> Path:
    """One of them, to be spoiled."""
    return Path(shutil.copytree(home / "ce", tmp_path / "ce"))


class Page(HTMLParser):
    """Notes what a page refers to, and that every element is closed."""

    VOID = ("meta", "link", "br", "hr", "img", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href"):
                self.references.append(value)
            self.references += re.findall(r"url\(([^)]*)\)", value or "")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_its_links_lead_somewhere(home, capsys):
    out = home / "page.html"
    assert main(["report", *(str(home / name) for name in RUNS), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "test scores on demo" in shown
    assert "parameters" in shown
    page = Page(out.read_text("utf-8"))
    assert len(page.ids) == len(set(page.ids))
    for reference in page.references:
        assert reference.startswith(("#", "data:image/png;base64,")), reference
        assert not reference.startswith("#") or reference[1:] in page.ids, reference
    again = home / "again.html"
    assert main(["report", str(home / "k4"), "--out", str(again)]) == 0
    figures = re.findall("<svg.*?</svg>", again.read_text("utf-8"), re.S)
    assert len(figures) == 11
    assert all(figure in out.read_text("utf-8") for figure in figures)  # the same each time
    for heading in ("Runs on demo", "Costs", "Study: seal-nce on demo: samples",
                    "ce to k2: gains and losses", "What the energy network believes"):  # fmt: skip
        assert heading in out.read_text("utf-8")


def test_a_run_has_its_page_in_its_folder(copy):
    assert main(["report", str(copy / "model.pt")]) == 0
    text = (copy / "report.html").read_text("utf-8")
    assert "python -m train ce --dataset demo" in text
    assert "Method ce has no energy network." in text
    assert [path.name for path in copy.iterdir() if path.name.startswith(".")] == []


def test_runs_from_before_all_was_recorded_are_shown_too(home, tmp_path):
    old = Path(shutil.copytree(home / "k2", tmp_path / "old"))
    metrics = json.loads((old / "metrics.json").read_text())
    del metrics["data"]
    (old / "metrics.json").write_text(json.dumps(metrics))
    untimed = [
        {k: v for k, v in json.loads(line).items() if k not in ("stage", "seconds")}
        for line in (old / "history.jsonl").read_text().splitlines()
    ]
    (old / "history.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in untimed))
    save_checkpoint(replace(load_checkpoint(old / "model.pt"), teacher={}), old / "model.pt")
    assert main(["report", str(old)]) == 0
    assert "from before model.pt kept the loss-net" in (old / "report.html").read_text("utf-8")
    (run,) = load_runs([old])
    assert run.seconds_per_epoch == metrics["seconds"] / 3


def test_the_page_of_a_run_says_what_made_it(copy):
    metrics = json.loads((copy / "metrics.json").read_text())
    assert set(metrics["machine"]) == {"system", "processor", "cores", "threads", "device"}
    assert main(["report", str(copy)]) == 0
    text = (copy / "report.html").read_text("utf-8")
    for value in (metrics["commit"] or "unknown", metrics["machine"]["processor"], "Calibration"):
        assert value in text


SMALL_RUN = ["--dataset", "demo", "--hidden", "30", "--epochs", "1", "--no-progress"]


@pytest.fixture
def for_users(monkeypatch):
    """As it is without the setting of tests/conftest.py."""
    monkeypatch.delenv("LABELWRIGHT_REPORT")


def test_training_ends_in_a_report(for_users, tmp_path, capsys):
    assert main(["ce", *SMALL_RUN, "--out", str(tmp_path / "run")]) == 0
    assert f"saved {tmp_path / 'run' / 'report.html'}" in capsys.readouterr().out
    assert "<h1>Report: run</h1>" in (tmp_path / "run" / "report.html").read_text("utf-8")


@pytest.mark.parametrize(("flag", "setting"), [("--no-report", "on"), ("--progress", "off")])
def test_the_report_can_be_left_out(monkeypatch, tmp_path, capsys, flag, setting):
    monkeypatch.setenv("LABELWRIGHT_REPORT", setting)
    assert main(["ce", *SMALL_RUN, flag, "--out", str(tmp_path / "run")]) == 0
    assert "report.html" not in capsys.readouterr().out
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_run_without_the_extra_says_how_to_get_it(for_users, tmp_path, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("train.report")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["ce", *SMALL_RUN, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert 'no report: a report needs jinja2: pip install "labelwright[report]"' in said
    assert f"saved {tmp_path / 'run' / 'model.pt'}" in said


def test_a_comparison_ends_in_a_report(for_users, tmp_path):
    words = ["--dataset", "demo", "--methods", "ce,br", "--seeds", "2", "--epochs", "1"]
    assert main(["compare", *words, "--out", str(tmp_path), "--no-progress"]) == 0
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "python -m train compare --dataset demo --methods ce,br" in text
    assert "<h4>leaderboard</h4>" in text
    # Every run is in the tables, the first of each method has sections of its own.
    assert all(name in text for name in ("ce-0", "ce-1", "br-0", "br-1"))
    assert "ce-0: ce on demo</h2>" in text
    assert "ce-1: ce on demo</h2>" not in text


def test_means_over_seeds_and_settings_that_are_not_mixed(runs):
    table = leaderboard_table(list(runs.values()), ["fixed.example_f1", "tuned.micro_f1"])
    assert len(table.rows) == len(runs)  # all differ in more than the seed
    scores = [mean.value for mean in column(table, "example-F1 at 0.5")]
    assert scores == sorted((run.fixed["example_f1"] for run in runs.values()), reverse=True)
    again = replace(runs["ce"], metrics={**runs["ce"].metrics, "seed": 1})
    (row,) = leaderboard_table([runs["ce"], again], ["fixed.example_f1"]).rows
    assert row[2] == 2


def test_papers_stand_beside_runs_of_their_data_sets(runs):
    run = runs["k4"]
    assert paper_table([run]) is None  # nobody printed anything about the demo
    metrics = {**run.metrics, "dataset": "genbase"}
    checkpoint = replace(run.checkpoint, dataset="genbase")
    table = paper_table([replace(run, metrics=metrics, checkpoint=checkpoint)])
    ours, printed = column(table, "ours")[0], column(table, "paper")[0]
    assert ours.value == run.fixed["example_f1"]
    assert column(table, "difference")[0] == pytest.approx(ours.value - printed.value)


def test_calibration_is_that_of_a_loop_and_of_sklearn(runs):
    run = runs["k4"]
    true, scores = run.true.toarray(), run.test_scores.astype(np.float64)
    bins = of_run(run)
    for label in range(true.shape[1]):
        error = 0.0
        for place in range(BINS):
            inside = [
                row for row in range(len(true))
                if min(int(run.test_scores[row, label] * np.float32(BINS)), BINS - 1) == place
            ]  # fmt: skip
            assert bins.cells[label, place] == len(inside)
            if inside:
                gap = scores[inside, label].mean() - true[inside, label].mean()
                error += len(inside) / len(true) * abs(gap)
        assert bins.error()[label] == pytest.approx(error)
    (row,) = calibration_table([run]).rows
    assert row[1] == pytest.approx(run.fixed["calibration_error"])
    assert row[2] == pytest.approx(scores.mean() - true.mean())
    brier = sklearn_metrics.brier_score_loss(true.ravel(), scores.ravel())
    assert row[3] == pytest.approx(brier)
    worst = label_calibration_table(run)
    assert column(worst, "ECE") == sorted(column(worst, "ECE"), reverse=True)
    place = run.checkpoint.labels.index(worst.rows[0][0])
    assert column(worst, "mean score")[0] == pytest.approx(scores[:, place].mean())


def test_confusions_are_those_of_a_loop(runs):
    run = runs["k4"]
    true, predicted = run.true.toarray(), run.predicted.toarray()
    confused = label_reports.most_confused(run)
    for i, one in enumerate(confused.labels):
        for k, other in enumerate(confused.labels):
            rows = sum(
                t[one] and not p[one] and p[other] and not t[other]
                for t, p in zip(true, predicted, strict=True)
            )
            assert confused.rows[i, k] == rows
        assert confused.true[i] == true[:, one].sum()
    perfect = replace(run, test_scores=true.astype(np.float32))
    assert label_reports.most_confused(perfect) is None


def test_words_from_the_data_are_no_markup():
    section = Section("<i>", "a")
    section.add(Table("<u>", [Column("<s>"), Column("n", ".1f")], [["<script>", 1.0]]))
    text = render([section], "<b>")
    for word in ("<i>", "<u>", "<s>", "<script>alert", "<b>"):
        assert word not in text
    assert "&lt;script&gt;" in text


def column(table: Table, name: str) -> list[object]:
    place = [column.name for column in table.columns].index(name)
    return [row[place] for row in table.rows]


def test_scores_by_label_are_those_of_sklearn(runs):
    run = runs["k4"]
    true = run.true.toarray()
    predicted = (run.test_scores >= 0.5).astype(int)
    table = label_reports.label_table(run, label_reports.label_scores(run))
    order = [run.checkpoint.labels.index(name) for name in column(table, "label")]
    expected = sklearn_metrics.precision_recall_fscore_support(true, predicted, zero_division=0)
    for name, values in zip(("precision", "recall", "F1", "test"), expected, strict=True):
        np.testing.assert_allclose(column(table, name), values[order], err_msg=name)
    # sklearn takes rows with tied scores together.
    precision = sklearn_metrics.average_precision_score(true, run.test_scores, average=None)
    np.testing.assert_allclose(column(table, "AP"), precision[order], atol=1e-3)
    assert column(table, "train") == sorted(run.train_counts.tolist(), reverse=True)


def test_tables_of_rows_cover_each_row_once(runs):
    run = runs["k4"]
    table = label_reports.set_size_table(run)
    sizes, f1 = column(table, "test rows"), column(table, "example-F1")
    assert sum(sizes) == 600
    assert np.average(f1, weights=sizes) == pytest.approx(run.fixed["example_f1"], abs=1e-6)
    exact = np.average(column(table, "exactly right"), weights=sizes)
    assert exact == pytest.approx(run.fixed["subset_accuracy"])
    by_label = label_reports.frequency_table(run, label_reports.label_scores(run))
    macro = np.average(column(by_label, "macro-F1"), weights=column(by_label, "labels"))
    assert macro == pytest.approx(run.fixed["macro_f1"], abs=1e-6)


def test_slices_are_shown_by_both_definitions(runs):
    run = runs["ce"]
    true, ranked = run.true, metrics.top_k(run.test_scores, 10)
    by_count, by_quantile = label_reports.slice_tables(run)
    masks = metrics.slices_by_count(run.train_counts)
    present = [name for name, mask in masks.items() if true.toarray()[:, mask].any()]
    assert [name.split(":")[0] for name in column(by_count, "labels")] == ["all labels", *present]
    first = ranked[:, :1] == np.arange(true.shape[1])  # whether a label comes first in a row
    hits = (first & (true.toarray() > 0)).sum(0) / np.maximum(true.toarray().sum(0), 1)
    for name, error in zip(present, column(by_count, "balanced error")[1:], strict=True):
        used = masks[name] & (true.toarray().sum(0) > 0)
        assert error == pytest.approx(1 - hits[used].mean())
    recalls = column(by_quantile, "recall@10")
    assert recalls[0] == pytest.approx(metrics.pair_recall_at_k(ranked, true, k=10))
    for mask, recall in zip(
        metrics.slices_by_quantile(run.train_counts).values(), recalls[1:], strict=True
    ):
        assert recall == pytest.approx(metrics.pair_recall_at_k(ranked, true, k=10, labels=mask))


def test_label_sets_are_known_or_new(runs):
    run = runs["k4"]
    seen = {tuple(row) for row in run.problem.train.targets.toarray()}
    true = [tuple(row) for row in run.true.toarray()]
    predicted = [tuple(row) for row in (run.test_scores >= 0.5).astype(int)]
    counts = [
        sum(row in seen for row in true),
        sum(row not in seen for row in true),
        sum(row in seen and any(row) for row in predicted),
        sum(row not in seen and any(row) for row in predicted),
        sum(not any(row) for row in predicted),
    ]
    assert column(label_reports.label_set_table(run), "rows") == counts


def test_confused_pairs_are_counted(runs):
    run = runs["k4"]
    true, predicted = run.true.toarray() > 0, run.test_scores >= 0.5
    names, train = run.checkpoint.labels, run.problem.train.targets.toarray() > 0
    table = label_reports.confusion_table(run)
    assert table.rows
    for missed, wrong, rows, share, both in table.rows:
        i, k = names.index(missed), names.index(wrong)
        assert rows == (true[:, i] & ~predicted[:, i] & predicted[:, k] & ~true[:, k]).sum()
        assert both == (train[:, i] & train[:, k]).sum()
        assert share == rows / true[:, i].sum()
    counts = column(table, "test rows")
    assert counts == sorted(counts, reverse=True)


def test_gains_and_losses(runs):
    before, after = runs["ce"], runs["k4"]
    true = before.true.toarray() > 0
    one, two = before.test_scores >= 0.5, after.test_scores >= 0.5
    labels, pairs, rows = label_reports.change_tables(before, after)
    f1 = [sklearn_metrics.f1_score(true, p, average=None, zero_division=0) for p in (one, two)]
    assert column(labels, "change")[0] == pytest.approx((f1[1] - f1[0]).max())
    names = before.checkpoint.labels
    for first, second, _, both, found_before, found_after, change in pairs.rows:
        i, k = names.index(first), names.index(second)
        has = true[:, i] & true[:, k]
        assert both == has.sum()
        assert found_before == (has & one[:, i] & one[:, k]).sum()
        assert found_after == (has & two[:, i] & two[:, k]).sum()
        assert change == found_after - found_before != 0
    f1 = [sklearn_metrics.f1_score(true, p, average="samples", zero_division=0) for p in (one, two)]
    change = column(rows, "change of F1")
    assert max(change) >= f1[1] - f1[0] >= min(change)
    assert change == sorted(change, reverse=True)


def test_a_run_does_not_change_against_itself(runs):
    tables = label_reports.change_tables(runs["ce"], runs["ce"])
    assert [list(table.rows) for table in tables] == [[], [], []]


def test_parameters_are_counted_in_the_networks(runs):
    task = 120 * 30 + 30 + 60 * 30
    energy = task + (60 + 2) * 5
    counts = {name: count_parameters(run) for name, run in runs.items()}
    assert (counts["ce"].task, counts["ce"].energy, counts["ce"].inference) == (task, 0, task)
    assert (counts["k2"].energy, counts["k2"].training) == (energy, task + energy)
    assert counts["k2"].inference == task
    assert (counts["spen"].energy, counts["spen"].inference) == (energy, task + energy)
    assert "training, paper" not in [c.name for c in parameter_table(list(runs.values())).columns]


def published(file: str) -> list[dict[str, str]]:
    with (PUBLISHED / file).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_published_numbers_agree_with_themselves():
    for row in published("parameters.csv"):
        assert int(row["ce"]) + int(row["energy_net"]) == int(row["seal_training"]), row
        assert row["ce"] == row["seal_inference"]
        assert int(row["ce"]) < int(row["energy_net"])
    datasets = {row["dataset"] for row in published("parameters.csv")}
    assert {row["dataset"] for row in published("inference.csv")} == datasets
    assert set(published("training.csv")[0]) - {"kind"} == datasets


def test_costs_stand_beside_the_published_ones(runs):
    runs = {
        name: replace(run, checkpoint=replace(run.checkpoint, dataset="bibtex"))
        for name, run in runs.items()
    }
    table = training_table([runs["ce"], runs["k2"]])
    assert column(table, "s an epoch, paper") == [22.67, 131.73]
    assert column(table, "times ce, paper")[1] == pytest.approx(131.73 / 22.67)
    ratio = runs["k2"].seconds_per_epoch / runs["ce"].seconds_per_epoch
    assert column(table, "times ce") == [1, pytest.approx(ratio)]
    table = parameter_table([runs["ce"], runs["k2"], runs["spen"]])
    assert column(table, "training, paper") == [958_800, 1_949_800, 991_000]
    assert column(table, "inference, paper") == [958_800, 958_800, 991_000]


def test_seconds_are_those_of_the_last_stage(runs):
    run = runs["spen"]
    assert [epoch["stage"] for epoch in run.history] == [0, 0, 0, 1, 1, 1]
    last = [epoch["seconds"] for epoch in run.history[3:]]
    assert run.seconds_per_epoch == pytest.approx(np.median(last))
    assert sum(epoch["seconds"] for epoch in run.history) == pytest.approx(
        run.metrics["seconds"], abs=0.01
    )


def test_runs_that_differ_in_one_number_are_a_study(runs):
    (study,) = find_studies(list(runs.values()))
    assert study.setting == "samples"
    assert [(value, run.name) for value, run in study.runs] == [(2, "k2"), (4, "k4")]
    assert find_studies([runs["ce"], runs["spen"], runs["k2"]]) == []


def test_every_section_has_something_to_say(runs):
    sections = make_sections(list(runs.values()))
    assert all(section.parts for section in sections)
    assert len({section.anchor for section in sections}) == len(sections)


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["report", *map(str, words)]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert message.count("\n") == 1
    return message


def test_what_is_no_run_is_told(capsys, tmp_path, copy):
    assert "is no run folder" in refused(capsys, tmp_path)
    assert "is no run folder" in refused(capsys, tmp_path / "nowhere" / "model.pt")
    assert "is given twice" in refused(capsys, copy, copy / "model.pt")
    assert "name at least one run" in refused(capsys)
    assert "in no folder that exists" in refused(capsys, copy, "--out", tmp_path / "no/page.html")


def test_an_unfinished_run_is_told(capsys, copy):
    metrics = json.loads((copy / "metrics.json").read_text())
    (copy / "metrics.json").write_text(json.dumps({**metrics, "finished": False}))
    assert "is not finished" in refused(capsys, copy)
    (copy / "metrics.json").write_text("{")
    assert "is damaged" in refused(capsys, copy)
    (copy / "metrics.json").unlink()
    assert "is not finished" in refused(capsys, copy)
    assert not (copy / "report.html").exists()


def test_a_changed_model_or_data_set_is_told(capsys, copy):
    metrics = json.loads((copy / "metrics.json").read_text())
    metrics["scores"]["fixed"]["example_f1"] += 0.1
    (copy / "metrics.json").write_text(json.dumps(metrics))
    assert "the data set or the model was changed" in refused(capsys, copy)


def test_a_data_set_that_is_gone_is_told(capsys, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    np.savez(tmp_path / "own.npz", x=x, y=(x[:, :3] > 0).astype(int))
    words = ["ce", "--dataset", str(tmp_path / "own.npz"), "--epochs", "2", "--hidden", "4"]
    assert main([*words, "--out", str(tmp_path / "run"), "--no-progress"]) == 0
    assert main(["report", str(tmp_path / "run")]) == 0
    np.savez(tmp_path / "own.npz", x=x[:20], y=(x[:20, :3] > 0).astype(int))
    assert "has other rows or labels" in refused(capsys, tmp_path / "run")
    (tmp_path / "own.npz").unlink()
    assert "is not where the run found it" in refused(capsys, tmp_path / "run")


def test_a_missing_extra_is_told(capsys, copy, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("train.report")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert 'a report needs jinja2: pip install "labelwright[report]"' in refused(capsys, copy)


def test_label_maps_are_those_of_embeddings_energy_network_and_rows(runs):
    assert set(label_maps(runs["ce"])) == {"label embeddings", "training rows"}
    maps = label_maps(runs["k4"])
    assert set(maps) == {"label embeddings", "energy network", "training rows"}
    vectors = runs["k4"].checkpoint.weights["labels"].numpy()
    assert maps["label embeddings"][3, 8] == pytest.approx(vectors[3] @ vectors[8], rel=1e-4)
    sections = make_sections([runs["k4"]])
    related = next(section for section in sections if section.title == "Which labels are related")
    assert [part.rows[0][0] for part in related.parts[:1]] == ["label embeddings"]
