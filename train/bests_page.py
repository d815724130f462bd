"""The part of `docs/results.md` that puts our best setting beside the best that papers print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from train.compare_display import DEFAULT_SCORES, score_title
from train.evidence import Mean, Record, goodness, mean_score
from train.published import Published, Report, published, reports

HEAD = """
## Beside the best of the papers

The best number that a paper prints for any method, score by score, and one setting of ours on rows
cut the paper's way: of all we ran the one that is above in most scores, of equals the best in the
first. A cell is *ours* (*paper's*, its method, difference). Which setting is named here depends on
test scores; each was made without them, unless its preset says otherwise.
"""


@dataclass(frozen=True, kw_only=True)
class Best:
    """Our best setting on a data set of a paper, and the paper's best numbers."""

    dataset: str
    records: Sequence[Record]
    """One a seed, all of one setting."""
    theirs: Mapping[str, tuple[str, Published]]
    """By score, first the one that decides: the method with the paper's best number, and that."""

    def ours(self, score: str) -> Mean:
        """Mean over seeds."""
        mean = mean_score(self.records, score)
        assert mean is not None  # noqa: S101 - see `_best`
        return mean

    def shortfalls(self) -> dict[str, float]:
        """By score: how far ours is below the paper's best, where it is not above."""
        gaps = {s: n.value - self.ours(s).value for s, (_, n) in self.theirs.items()}
        return {score: gap for score, gap in gaps.items() if gap >= 0}


def bests(report: Report, records: Sequence[Record]) -> list[Best]:
    """Each data set of a paper of which we have runs on rows that are cut its way."""
    found = []
    for dataset in sorted(report.datasets):
        split = report.paper.split_of(dataset)
        settings: dict[tuple[str, str, str], list[Record]] = {}
        for record in records:
            if record.dataset == dataset and record.table == (split, 0, 1.0):
                settings.setdefault(record.setting, []).append(record)
        best = _best(dataset, report, list(settings.values()))
        found += [best] if best else []
    return found


def _best(dataset: str, report: Report, settings: Sequence[Sequence[Record]]) -> Best | None:
    theirs: dict[str, tuple[str, Published]] = {}
    for score in _in_order(report):
        numbers = [
            (method, row[score])
            for method, row in published(dataset).items()
            if score in row and row[score].paper == report.paper
        ]
        if numbers:
            theirs[score] = max(numbers, key=lambda found: found[1].value)
    complete = [
        Best(dataset=dataset, records=records, theirs=theirs)
        for records in settings
        if all(score in record.scores for record in records for score in theirs)
    ]
    first = next(iter(theirs))
    return max(
        complete,
        key=lambda best: (-len(best.shortfalls()), goodness(best.ours(first), first)),
        default=None,
    )


def bests_section(records: Sequence[Record]) -> str:
    """A table for each paper, and what stays below; nothing where no data set is shared."""
    parts = []
    for report in reports():
        found = bests(report, records)
        if found:
            lines = [f"\n### {report.paper.name}: best\n", *_table(found, _in_order(report))]
            parts.append("\n".join(lines) + "\n")
    return "".join([HEAD, *parts]) if parts else ""


def _in_order(report: Report) -> list[str]:
    """The scores of a paper, those of every comparison first and in its order."""
    usual = [score for score in DEFAULT_SCORES if score in report.scores]
    return [*usual, *sorted(report.scores - set(usual))]


def _table(found: Sequence[Best], scores: Sequence[str]) -> list[str]:
    lines = ["| " + " | ".join(["data set", "ours", "seeds", *map(score_title, scores)]) + " |"]
    lines.append("|---|---|--:|" + "---|" * len(scores))
    for best in found:
        cells = [_cell(best, score) if score in best.theirs else "" for score in scores]
        name, seeds = best.records[0].name, str(len(best.records))
        lines.append("| " + " | ".join([best.dataset, name, seeds, *cells]) + " |")
    below = [
        f"{best.dataset} {score_title(score)} by {gap:.4f}"
        for best in found
        for score, gap in best.shortfalls().items()
    ]
    return [*lines, "", f"Not above: {', '.join(below) if below else 'none'}."]


def _cell(best: Best, score: str) -> str:
    method, number = best.theirs[score]
    ours = best.ours(score)
    theirs = f"{number.value:.4f}{'?' * number.is_doubtful} {method}"
    return f"{ours} ({theirs}, {ours.value - number.value:+.4f})"
