"""The page and the figure that the comparison of servers writes."""

from __future__ import annotations

from benchmarks.serving.__main__ import CASES, Options, Results, publish
from benchmarks.serving.page import OURS
from benchmarks.serving.running import Burst


def measured(*factors):
    """Three rounds of ours, and of a peer that has so much of its rate in each."""
    results = Results()
    for case in CASES:
        if not case.is_binary:
            results.bursts[("peer", case.name)] = [Burst(100 * f, 4, 8, 9) for f in factors]
        results.bursts[(OURS, case.name)] = [Burst(100, 2, 2, 9) for _ in factors]
    return results


def test_the_figure_stands_beside_the_page_and_has_the_page_s_ratios(tmp_path):
    options = Options(page=tmp_path / "performance.md")
    text = publish(measured(0.5, 0.25, 0.1), options)
    assert options.page.read_text() == text
    assert "](performance.svg)" in text
    assert "| peer | 0.25 (8.00) |" in text
    figure = (tmp_path / "performance.svg").read_text()
    for word in ("peer", "1 row JSON,", "0.25", "2.00", "4.00"):
        assert f">{word}</text>" in figure
    assert "0.50</text>" not in figure
    publish(measured(0.5, 0.25, 0.1), options)
    assert (tmp_path / "performance.svg").read_text() == figure


def test_ours_alone_has_no_figure(tmp_path):
    results = measured(1)
    results.bursts = {key: bursts for key, bursts in results.bursts.items() if key[0] == OURS}
    text = publish(results, Options(page=tmp_path / "performance.md"))
    assert "svg" not in text
    assert [path.name for path in tmp_path.iterdir()] == ["performance.md"]
