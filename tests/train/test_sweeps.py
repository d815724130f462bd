"""Runs that differ in one number alone become curves."""

from __future__ import annotations

from pathlib import Path

import pytest

import train.cli
from train.evidence import MASK_SCORES, add_results, preset_values
from train.sweeps import find_sweeps


def sampled(record, samples: int, value: float, **about):
    return record("seal:nce", changed=f"samples={samples}", value=value, **about)


def test_the_preset_gives_a_value_too(record):
    own = preset_values("seal", "nce", "genbase", "auto")["samples"]
    records = [sampled(record, 5, 0.3), sampled(record, 5, 0.5, seed=1), sampled(record, 7, 0.6)]
    (sweep,) = find_sweeps([*records, record("seal:nce", value=0.7)])
    assert (sweep.dataset, sweep.split, sweep.setting) == ("genbase", "60/20/20", "samples")
    assert sweep.values == [5, 7, own]
    means = sweep.means("seal:nce", "fixed.example_f1")
    assert {value: mean.value for value, mean in means.items()} == pytest.approx(
        {5: 0.4, 7: 0.6, own: 0.7}
    )


def test_shares_of_the_rows_are_a_setting(record):
    shares = [record(fraction=share, value=share / 2) for share in (1.0, 0.1, 0.5)]
    other = record("dvn", fraction=0.1)  # no curve
    (sweep,) = find_sweeps([*shares, other])
    assert sweep.setting == "fraction"
    assert list(sweep.lines) == ["ce"]
    assert list(sweep.lines["ce"]) == [0.1, 0.5, 1.0]


@pytest.mark.parametrize(
    "about",
    [
        {"changed": "samples=9 lr=0.1"},
        {"changed": "loss=ranking"},
        {"changed": "samples=9", "fraction": 0.5},
        {"changed": "samples=9", "split": "80/10/10"},
        {"changed": "samples=9", "split_seed": 1},
        {"changed": "samples=9", "preset": "fast"},
    ],
    ids=lambda about: " ".join(map(str, about.values())),
)
def test_whatever_differs_otherwise_is_no_part_of_it(record, about):
    records = [sampled(record, 5, 0.3), record("seal:nce", value=0.7)]
    assert find_sweeps([*records, record("seal:nce", **about)]) == []
    assert len(find_sweeps([*records, sampled(record, 9, 0.4)])) == 1


def test_the_page_shows_them_and_a_figure_stands_beside_it(tmp_path, record):
    records = [sampled(record, k, k / 10) for k in (1, 2, 4)]
    add_results(records, tmp_path)
    page = tmp_path / "page.md"
    assert train.cli.main(["results", "--into", str(tmp_path), "--page", str(page)]) == 0
    text = page.read_text()
    assert "### genbase: by `samples`" in text
    assert "| seal:nce | example-F1 at 0.5 | 0.1000 | 0.2000 | 0.4000 |" in text
    (figure,) = tmp_path.glob("*.svg")
    assert f"]({figure.name})" in text
    drawn = figure.read_text()
    assert all(word in drawn for word in ("seal:nce", "example-F1 at 0.5", "macro-F1 tuned"))
    assert train.cli.main(["results", "--into", str(tmp_path), "--page", str(page)]) == 0
    assert figure.read_text() == drawn


def test_masks_have_scores_of_their_own(tmp_path: Path, record):
    scores = dict.fromkeys(MASK_SCORES, 0.5)
    shares = [
        record(dataset="weizmann_horses", split="published", fraction=share, scores=scores)
        for share in (0.1, 0.5, 1.0)
    ]
    add_results(shares, tmp_path)
    page = tmp_path / "page.md"
    assert train.cli.main(["results", "--into", str(tmp_path), "--page", str(page)]) == 0
    assert "### weizmann_horses: by share of the training rows" in page.read_text()
    assert "mean image IoU at 0.5" in next(tmp_path.glob("*.svg")).read_text()
