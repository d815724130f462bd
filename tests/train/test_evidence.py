"""Runs become rows, rows become the page."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import train.cli
from benchmarks import again
from benchmarks.again import differences
from train.data.registry import find_files, find_info
from train.errors import DataError
from train.evidence import (
    MASK_SCORES,
    SPAN_SCORES,
    TAIL_SCORES,
    Record,
    add_results,
    mean_score,
    read_results,
    record_of,
    results_text,
    run_folders,
)
from train.results_page import results_page

ROOT = Path(__file__).parents[2]


def test_rows_are_read_as_they_were_written(tmp_path, record):
    records = [record(seed=0), record("seal:nce", 1, 0.123457, changed="lr=0.1 hidden=[4,4]")]
    assert add_results(records, tmp_path) == {tmp_path / "genbase.csv": 2}
    assert read_results(tmp_path / "genbase.csv") == records


def test_scores_of_rare_labels_are_kept_where_a_run_has_them(tmp_path, record):
    tail = {name: round(0.25 + 0.01 * i, 2) for i, name in enumerate(TAIL_SCORES)}
    known = record()
    measured = record("sampled", scores={**known.scores, **tail})
    add_results([known, measured], tmp_path)
    assert read_results(tmp_path / "genbase.csv") == [known, measured]
    page = results_page(tmp_path)
    *_, row = (line for line in page.splitlines() if line.startswith("| sampled | 1 |"))
    assert row.endswith(f" | **{tail['fixed.pair_recall@10_quantile_tail']:.4f}** |")
    assert sum(line.startswith("| ce | 1 |") for line in page.splitlines()) == 1  # not below it


def test_a_run_with_the_same_settings_replaces_the_earlier_one(tmp_path, record):
    add_results([record(value=0.4), record(seed=1)], tmp_path)
    add_results([record(value=0.5), record(changed="epochs=2"), record(fraction=0.5)], tmp_path)
    rows = read_results(tmp_path / "genbase.csv")
    assert len(rows) == 4
    (again,) = (row for row in rows if row.key == record().key)
    assert again.scores["fixed.example_f1"] == 0.5
    text = (tmp_path / "genbase.csv").read_text()
    add_results(rows[::-1], tmp_path)
    assert (tmp_path / "genbase.csv").read_text() == text


def test_a_file_that_is_no_results_is_refused(tmp_path, record):
    (tmp_path / "genbase.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"genbase\.csv is no file of results"):
        add_results([record()], tmp_path)
    assert (tmp_path / "genbase.csv").read_text() == "a,b\n1,2\n"


def test_mean_and_deviation_over_seeds(record):
    mean = mean_score([record(value=0.4), record(value=0.5), record(value=0.6)], "tuned.micro_f1")
    assert mean is not None
    assert (mean.value, mean.deviation) == pytest.approx((0.5, 0.1))
    assert str(mean) == "0.5000 ± 0.1000"
    assert str(mean_score([record(value=0.4)], "tuned.micro_f1")) == "0.4000"
    assert mean_score([record()], "fixed.lrap") is None


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    """A plain run of a method that has kinds, with a hyper-parameter unlike its preset."""
    folder = tmp_path_factory.mktemp("runs") / "a run"
    words = ["seal", "--dataset", "demo", "--loss", "margin", "--epochs", "1", "--seed", "4"]
    assert train.cli.main([*words, "--no-progress", "--out", str(folder)]) == 0
    return folder


def metrics_in(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


def test_a_plain_run_can_be_collected(run_folder):
    found = record_of(metrics_in(run_folder))
    assert (found.dataset, found.method, found.preset) == ("demo", "seal:margin", "auto")
    assert (found.seed, found.split, found.fraction) == (4, "60/20/20", 1.0)
    assert found.changed == "epochs=1"
    words = "seal --dataset demo --loss margin --epochs 1 --seed 4"
    assert found.command == f"python -m train {words}"
    assert found.scores["fixed.lrap"] == metrics_in(run_folder)["scores"]["fixed"]["lrap"]


def test_runs_of_before_presets_were_recorded_can_be_collected(run_folder):
    metrics = metrics_in(run_folder)
    for key in ("kind", "preset", "commit"):
        del metrics[key]
    found = record_of(metrics)
    assert (found.method, found.preset, found.commit) == ("seal:margin", "auto", "unknown")


def test_the_command_collects_what_is_finished(run_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert train.cli.main(["results", str(run_folder.parent)]) == 2
    assert "there is no folder train/results" in capsys.readouterr().err
    cut = metrics_in(run_folder) | {"finished": False}
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "metrics.json").write_text(json.dumps(cut))
    words = ["results", str(run_folder.parent), "cut", "--into", ".", "--page", "page.md"]
    assert train.cli.main(words) == 0
    assert "left out cut" in capsys.readouterr().out
    assert [row.method for row in read_results(Path("demo.csv"))] == ["seal:margin"]
    assert "| seal:margin (epochs=1) | 1 |" in Path("page.md").read_text()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "name run folders"),
        (["empty"], "there is no run in empty"),
        (["damaged"], "is no JSON"),
        (["other"], "is not of a run of this version"),
        (["empty", "--into", "nowhere"], "there is no folder nowhere"),
    ],
    ids=["nothing", "empty", "damaged", "other", "no folder"],
)
def test_mistakes(words, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("train/results").mkdir(parents=True)
    for name, text in (("empty", None), ("damaged", "{"), ("other", "{}")):
        Path(name).mkdir()
        if text is not None:
            (Path(name) / "metrics.json").write_text(text)
    assert train.cli.main(["results", *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert expected in line


def test_run_folders_are_found_at_any_depth(tmp_path):
    for name in ("a/b", "a/c/d"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "metrics.json").write_text("{}")
    assert run_folders([tmp_path / "a"]) == [tmp_path / "a/b", tmp_path / "a/c/d"]
    assert run_folders([tmp_path / "a/b"]) == [tmp_path / "a/b"]


def page_of(records: list[Record], folder: Path) -> str:
    (folder / f"{records[0].dataset}.csv").write_text(results_text(records))
    return results_page(folder)


def test_notes_of_a_data_set_are_shown_below_its_tables(tmp_path, record):
    (tmp_path / "genbase.md").write_text("### What was left out\n", encoding="utf-8")
    add_results([record(), record(dataset="zoo")], tmp_path)
    page = results_page(tmp_path)
    assert page.index("\n## genbase") < page.index("What was left out") < page.index("\n## zoo")


def test_what_the_plan_names_and_no_row_shows_is_listed_as_left_out(tmp_path, record):
    add_results([record("ce", seed=1)], tmp_path)
    assert "Left out" not in results_page(tmp_path)
    table = '[[tables]]\ndataset = "genbase"\nsplit = "60/20/20"\n'
    plan = tmp_path / "plan.toml"
    plan.write_text(f'{table}methods = ["ce", "seal:nce"]\n')
    assert "| genbase 60/20/20 | ce (2), seal:nce (3) |" in results_page(tmp_path)
    plan.write_text(f'{table}methods = ["ce"]\nseeds = 2\n')
    add_results([record("ce", seed=0)], tmp_path)
    assert results_page(tmp_path).endswith("\nNothing is missing.\n")


def test_differing_numbers_are_named_the_largest_first(record):
    one = record()
    assert differences(one, record(value=0.4 + 4e-7)) == {}  # fewer digits are kept
    scores = {**one.scores, "fixed.micro_f1": 0.39, "tuned.macro_f1": 0.42}
    found = differences(one, record(scores=scores))
    assert found == {"tuned.macro_f1": pytest.approx(0.02), "fixed.micro_f1": pytest.approx(-0.01)}
    assert list(found) == ["tuned.macro_f1", "fixed.micro_f1"]


@pytest.mark.skipif(
    not find_files(find_info("yeast"), None, os.environ),
    reason="yeast is not on this machine: LABELWRIGHT_DATA names the folder of data sets",
)
def test_committed_rows_trained_again_give_the_same_numbers(tmp_path):
    # So short are only methods that draw nothing at random.
    words = ["--datasets", "yeast", "--longest", "0.25", "--rows", "2", "--out", str(tmp_path)]
    assert again.main(words) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}


def test_the_page_shows_ours_beside_the_papers(tmp_path, record):
    page = page_of([record(value=0.46), record(seed=1, value=0.48), record("dvn")], tmp_path)
    # SEAL's Table 1 has 47.37 and 77.92, and a doubtful 37.82 for a method without a run.
    assert "| ce | 2 | **0.4700 ± 0.0141** (0.4737, -0.0037) |" in page
    assert "| dvn | 1 | 0.4000 (0.7792, -0.3792) |" in page
    assert "| seal:static-nce | 0 | no run (0.3782?) |" in page
    command = "compare --dataset genbase --methods ce,dvn --seeds 2 --split 60/20/20"
    assert f"python -m train {command}\n" in page
    assert "Lee et al." in page


def test_papers_stand_beside_runs_on_their_split_alone(tmp_path, record):
    delicious = [
        record(dataset="delicious"),
        record("mpvae", dataset="delicious", split="80/10/10"),
        record(dataset="delicious", fraction=0.5),
    ]
    page = page_of(delicious, tmp_path)
    halves = page.split("\nSplit ")[1:]
    assert [half.split(".")[0].split(",")[0] for half in halves] == ["60/20/20"] * 2 + ["80/10/10"]
    whole, half, other = halves
    assert "(0.2989, +0.1011)" in whole
    assert "C-GMVAE" not in whole
    assert "(" not in half.partition("| ce |")[2].splitlines()[0]
    assert "0.5 of the training rows" in half
    assert "| mpvae | 1 | **0.4000** | **0.4000** (0.3730, +0.0270) |" in other
    assert "SEAL" not in other


def test_another_split_than_the_papers_is_said(tmp_path, record):
    page = page_of([record("mpvae", dataset="reuters21578", split="published")], tmp_path)
    assert "split 80/10/10, unlike ours" in page


def test_of_violations_the_fewest_are_the_best(tmp_path, record):
    few, many = (dict.fromkeys(SPAN_SCORES, value) for value in (0.2, 0.3))
    words = {"dataset": "propbank_ewt", "split": "published"}
    page = page_of(
        [record("ce", scores=few, **words), record("dvn", scores=many, **words)], tmp_path
    )
    rows = {row.split(" | ")[0].strip("| "): row.split(" | ") for row in page.splitlines()}
    place = 2 + SPAN_SCORES.index("fixed.core_role_violations")
    assert [rows[method][place] for method in ("ce", "dvn")] == ["**0.2000**", "0.3000"]
    assert [rows[method][2] for method in ("ce", "dvn")] == ["0.2000", "**0.3000**"]


def test_an_empty_folder_gives_a_page(tmp_path):
    assert "No run has been added yet." in results_page(tmp_path)


def test_the_committed_page_and_figures_are_those_of_the_committed_results(tmp_path):
    words = ["--into", str(ROOT / "train" / "results"), "--page", str(tmp_path / "results.md")]
    assert train.cli.main(["results", *words]) == 0
    written = sorted(tmp_path.iterdir())
    assert [path.name for path in written] == sorted(
        path.name for path in (ROOT / "docs").glob("results*")
    )
    for path in written:
        assert (ROOT / "docs" / path.name).read_text("utf-8") == path.read_text("utf-8"), (
            "run `make results`"
        )


def test_runs_on_images_keep_the_scores_of_masks(tmp_path, record):
    masks = record("ce", dataset="horses", scores=dict.fromkeys(MASK_SCORES, 0.7))
    add_results([masks, record("ce")], tmp_path)
    (kept,) = read_results(tmp_path / "horses.csv")
    assert kept == masks
    assert "precision" not in (tmp_path / "horses.csv").read_text()
    page = results_page(tmp_path)
    assert "mean image IoU at 0.5" in page
    assert "**0.7000**" in page
