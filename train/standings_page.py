"""The part of `docs/results.md` that compares methods over data sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from train.compare_display import DEFAULT_SCORES, score_title
from train.evidence import Record, mean_score
from train.published import Report, reports
from train.standings import Means, Standing, pairings, standing

BASELINE = "ce"
HEAD = """
## Over data sets

Each paper's scores on its data sets, cut its way: our means over seeds, methods ranked on each data
set, 1 best. Lines in a figure join methods whose mean ranks are less apart than the critical
difference (Nemenyi, 5 %); p is Friedman's for the ranks, Wilcoxon's for a pair. With so few data
sets only large differences can be told from chance.
"""


def paper_standings(records: Sequence[Record]) -> dict[str, dict[str, Standing]]:
    """By paper and score; nothing of papers that share too few data sets with us."""
    found: dict[str, dict[str, Standing]] = {}
    for report in reports():
        for score in (score for score in DEFAULT_SCORES if score in report.scores):
            stands = standing(_means(records, report, score))
            if stands is not None:
                found.setdefault(report.paper.name, {})[score] = stands
    return found


def figure_name(stem: str, paper: str) -> str:
    """The file beside the page that draws the ranks by a paper's first score."""
    return f"{stem}-{paper.lower().replace('-', '')}.svg"


def standings_section(records: Sequence[Record], stem: str) -> str:
    """Tables and figures; nothing where no paper's data sets have runs."""
    standings = paper_standings(records)
    parts = [HEAD] if standings else []
    for report in reports():
        if report.paper.name in standings:
            by_score = standings[report.paper.name]
            first, stands = next(iter(by_score.items()))
            lines = ["", f"### {report.paper.name}", "", f"On {', '.join(stands.datasets)}.", ""]
            picture = figure_name(stem, report.paper.name)
            lines += [*_ranks(by_score), "", f"![mean ranks by {score_title(first)}]({picture})"]
            lines += _pairs(_means(records, report, first), score_title(first))
            parts.append("\n".join(lines) + "\n")
    return "".join(parts)


def _means(records: Sequence[Record], report: Report, score: str) -> Means:
    """Of runs on all training rows of the paper's split."""
    groups: dict[str, dict[str, list[Record]]] = {}
    for record in records:
        dataset, split = record.dataset, report.paper.split_of(record.dataset)
        is_theirs = dataset in report.datasets and record.table == (split, 0, 1.0)
        if is_theirs and not record.changed:
            groups.setdefault(dataset, {}).setdefault(record.name, []).append(record)
    means: dict[str, dict[str, float]] = {}
    for dataset, methods in groups.items():
        for method, members in methods.items():
            mean = mean_score(members, score)
            if mean is not None:
                means.setdefault(dataset, {})[method] = mean.value
    return means


def _ranks(by_score: Mapping[str, Standing]) -> Iterable[str]:
    """Mean ranks, a column a score; the order is that of the first."""
    yield "| method | " + " | ".join(map(score_title, by_score)) + " |"
    yield "|---|" + "--:|" * len(by_score)
    for method in next(iter(by_score.values())).ranks:
        cells = [f"{s.ranks[method]:.2f}" if method in s.ranks else "" for s in by_score.values()]
        yield f"| {method} | " + " | ".join(cells) + " |"
    yield "| *p* | " + " | ".join(f"{s.p_value:.3f}" for s in by_score.values()) + " |"


def _pairs(means: Means, title: str) -> Iterable[str]:
    """Every method against the plain network."""
    found = pairings(means, BASELINE)
    if not found:
        return
    yield from ("", f"{title} against `{BASELINE}`, on the data sets that have both:", "")
    yield "| method | data sets | better | worse | mean difference | p |"
    yield "|---|--:|--:|--:|--:|--:|"
    for method, pair in found.items():
        counts = f"{pair.datasets} | {pair.wins} | {pair.losses}"
        yield f"| {method} | {counts} | {pair.difference:+.4f} | {pair.p_value:.3f} |"
