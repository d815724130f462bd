"""The papers' numbers: all of them readable, under names that are ours."""

from __future__ import annotations

import pytest

from train import methods
from train.data.registry import known
from train.published import _all_numbers, leaderboard, published


def test_numbers_are_on_our_scale():
    number = published("delicious")["seal:nce"]["fixed.example_f1"]
    assert number.value == pytest.approx(0.3467)
    assert (number.deviation, number.is_doubtful) == (None, False)
    number = published("yeast")["cgmvae"]["tuned.micro_f1"]
    assert (number.value, number.deviation) == (0.665, 0.002)
    assert published("scene")["haram"]["fixed.precision@1"].value == 0.722
    number = published("aapd")["abalone:msc"]["fixed.hamming_accuracy"]  # a loss of 23.72 / 1000
    assert number.value == pytest.approx(1 - 0.02372)


def test_doubtful_and_missing_numbers_are_told_apart():
    assert published("genbase")["seal:static-nce"]["fixed.example_f1"].is_doubtful
    assert "seal:regression-s" not in published("spo_fun")
    assert published("demo") == {}


def test_the_tables_are_complete():
    counts: dict[str, int] = {}
    for rows in _all_numbers().values():
        for numbers in rows.values():
            for number in numbers.values():
                counts[number.paper.name] = counts.get(number.paper.name, 0) + 1
    # 11 methods on 7 data sets but for one cell; 8 methods on 9 data sets in 5 metrics; 8 methods
    # on 3 data sets in 3 metrics, but for 3 methods on one of them.
    assert counts == {"SEAL": 11 * 7 - 1, "C-GMVAE": 8 * 9 * 5, "ABALONE": (8 * 3 - 3) * 3}


def test_names_are_ours():
    assert set(_all_numbers()) <= set(known())
    for rows in _all_numbers().values():
        for name in rows:
            method, _, kind = name.partition(":")
            if method in methods.available():
                assert kind in (methods.load(method).Config.KINDS or [""])


def test_a_paper_may_cut_a_data_set_otherwise():
    paper = published("spo_fun")["ce"]["fixed.example_f1"].paper
    assert paper.split_of("spo_fun") == "published"
    assert paper.split_of("bibtex") == "60/20/20"


def test_a_leaderboard_belongs_to_its_rows():
    board = leaderboard("delicious", "published")
    assert board["FastXML"]["fixed.psp@5"].value == pytest.approx(0.3543)
    assert all(number.is_doubtful for row in board.values() for number in row.values())
    assert leaderboard("delicious", "60/20/20") == {}
