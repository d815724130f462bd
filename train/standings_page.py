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


EVERYWHERE = "All data sets"
EVERYWHERE_HEAD = """
Every data set once, cut the way in which most methods were run, all training rows; methods with
their presets, or with their defaults where a data set has none."""


def standings_by_field(records: Sequence[Record]) -> dict[str, dict[str, Standing]]:
    """By paper, or all data sets, and score; nothing of what shares too few data sets with us."""
    found: dict[str, dict[str, Standing]] = {}
    for name, by_score in _fields(records).items():
        for score, means in by_score.items():
            stands = standing(means)
            if stands is not None:
                found.setdefault(name, {})[score] = stands
    return found


def figure_name(stem: str, field: str) -> str:
    """The file beside the page that draws the ranks by a field's first score."""
    return f"{stem}-{field.lower().replace('-', '').replace(' ', '-')}.svg"


def standings_section(records: Sequence[Record], stem: str) -> str:
    """Tables and figures; nothing where too few data sets have runs."""
    fields = _fields(records)
    standings = standings_by_field(records)
    parts = [HEAD] if standings else []
    for name, by_score in standings.items():
        first, stands = next(iter(by_score.items()))
        lines = ["", f"### {name}", *[EVERYWHERE_HEAD] * (name == EVERYWHERE), ""]
        lines += [f"On {', '.join(stands.datasets)}.", ""]
        picture = figure_name(stem, name)
        lines += [*_ranks(by_score), "", f"![mean ranks by {score_title(first)}]({picture})"]
        lines += _pairs(fields[name][first], score_title(first))
        parts.append("\n".join(lines) + "\n")
    return "".join(parts)


def _fields(records: Sequence[Record]) -> dict[str, dict[str, Means]]:
    """Means over seeds by score: of each paper on its data sets, and of all data sets."""
    plain = [r for r in records if r.fraction == 1 and r.split_seed == 0 and not r.changed]
    fields = {
        report.paper.name: {
            score: _means([r for r in plain if _is_theirs(r, report)], score)
            for score in DEFAULT_SCORES
            if score in report.scores
        }
        for report in reports()
    }
    usual = _most_run([record for record in plain if record.preset == "auto"])
    return {**fields, EVERYWHERE: {score: _means(usual, score) for score in DEFAULT_SCORES}}


def _is_theirs(record: Record, report: Report) -> bool:
    """Whether it is of a paper's data set, cut the paper's way."""
    split = report.paper.split_of(record.dataset)
    return record.dataset in report.datasets and record.split == split


def _most_run(records: Sequence[Record]) -> list[Record]:
    """Of each data set the runs on the split that most methods have."""
    methods: dict[tuple[str, str], set[str]] = {}
    for record in records:
        kind_free = record.method.partition(":")[0]
        methods.setdefault((record.dataset, record.split), set()).add(kind_free)
    best: dict[str, str] = {}
    for dataset, split in sorted(methods, key=lambda place: len(methods[place])):
        best[dataset] = split
    return [record for record in records if best[record.dataset] == record.split]


def _means(records: Sequence[Record], score: str) -> Means:
    groups: dict[str, dict[str, list[Record]]] = {}
    for record in records:
        groups.setdefault(record.dataset, {}).setdefault(record.name, []).append(record)
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
    yield "| *p* | " + " | ".join(_p(s.p_value) for s in by_score.values()) + " |"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.0005 else f"{value:.3f}"


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
        yield f"| {method} | {counts} | {pair.difference:+.4f} | {_p(pair.p_value)} |"
