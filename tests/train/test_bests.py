"""Our best setting beside the best that papers print, against the papers' tables read by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from train.bests_page import bests, bests_section
from train.compare_display import DEFAULT_SCORES
from train.published import PAPERS, reports

FIVE = DEFAULT_SCORES[1:]


def of(name):
    return next(report for report in reports() if report.paper.name == name)


def largest_printed(paper, score, dataset):
    """The greatest number of a column, as the file has it."""
    first, *rows = (PAPERS / paper / f"{score}.csv").read_text("utf-8").split()
    place = first.split(",").index(dataset)
    cells = [row.split(",")[place].split("±")[0].rstrip("?") for row in rows]
    return max(float(cell) for cell in cells if cell)


def test_theirs_is_the_greatest_number_of_each_score(record):
    (best,) = bests(of("C-GMVAE"), [record("ce", dataset="yeast", split="80/10/10")])
    assert list(best.theirs) == list(FIVE)
    for score, (_, number) in best.theirs.items():
        assert number.value == pytest.approx(largest_printed("cgmvae", score, "yeast"))


def test_the_setting_above_in_most_scores_is_chosen_even_if_another_leads_in_the_first(record):
    place = {"dataset": "scene", "split": "80/10/10"}
    above = record("mlknn", value=0.95, **place)
    once = record("br", value=0.1, **place)
    once = replace(once, scores={**once.scores, FIVE[0]: 0.99})
    (best,) = bests(of("C-GMVAE"), [once, above])
    assert best.records == [above]
    assert best.shortfalls() == {}
    (best,) = bests(of("C-GMVAE"), [once])
    assert list(best.shortfalls()) == list(FIVE[1:])
    assert best.shortfalls()[FIVE[1]] == pytest.approx(
        largest_printed("cgmvae", FIVE[1], "scene") - 0.1
    )


def test_of_equals_the_best_in_the_first_score_is_chosen_by_the_mean_over_seeds(record):
    runs = [record("ce", seed, value) for seed, value in enumerate((0.1, 0.3))]
    runs += [record("asl", seed, value) for seed, value in enumerate((0.15, 0.35))]
    (best,) = bests(of("SEAL"), runs)
    assert {run.method for run in best.records} == {"asl"}
    assert best.ours("fixed.example_f1").value == pytest.approx(0.25)
    gap = largest_printed("seal", "fixed.example_f1", "genbase") / 100 - 0.25
    assert best.shortfalls() == {"fixed.example_f1": pytest.approx(gap)}


def test_an_equal_number_is_not_above(record):
    value = largest_printed("seal", "fixed.example_f1", "genbase") / 100
    (best,) = bests(of("SEAL"), [record(value=value)])
    assert best.shortfalls() == {"fixed.example_f1": 0.0}


@pytest.mark.parametrize("other", [
    {"split": "80/10/10"}, {"split_seed": 1}, {"fraction": 0.5}, {"dataset": "aapd_2k"},
])  # fmt: skip
def test_other_rows_are_not_put_beside_a_paper(record, other):
    assert bests(of("SEAL"), [record(**other)]) == []


def test_the_section_names_what_is_not_above(record):
    assert bests_section([]) == ""
    page = bests_section([record("dvn", seed, 0.9) for seed in (0, 1)])
    assert "| genbase | dvn | 2 | 0.9000 ± 0.0000 (0.9781 seal:regression-s, -0.0781) |" in page
    assert "Not above: genbase example-F1 at 0.5 by 0.0781." in page
    assert "Not above: none." in bests_section([record(value=0.99)])
