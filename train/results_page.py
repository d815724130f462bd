"""`docs/results.md`, made from the committed results and the papers' numbers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from train.bests_page import bests_section
from train.compare_display import score_title
from train.evidence import (
    KEPT_SCORES,
    TAIL_SCORES,
    Record,
    all_results,
    goodness,
    kept_scores,
    mean_score,
)
from train.left_out_page import left_out_section
from train.published import Numbers, Paper, Published, leaderboard, published
from train.standings_page import standings_section
from train.sweeps import FRACTION, Sweep, find_sweeps

HEAD = """\
# Results

Made by `make results` from the rows in `train/results`, one a run, and the papers' numbers in
`train/papers`; never edited by hand. [compare.md](compare.md) says how runs are made and added,
[metrics.md](metrics.md) what the numbers mean.

A cell is *ours* (*paper*, difference): mean ± standard deviation over seeds, then the paper's
number and how far ours is above it, worse ones included. Bold is our best; `?` marks a number that
is doubtful in its source. Seconds are those of training one run, often beside others on the same
cores.
"""
TAIL_TABLE = {
    "fixed.precision@1": "P@1", "fixed.precision@3": "P@3", "fixed.precision@5": "P@5",
    "fixed.psp@1": "PSP@1", "fixed.psp@3": "PSP@3", "fixed.psp@5": "PSP@5",
    **{f"fixed.pair_recall@10_quantile_{part}": f"R@10 {part}"
       for part in ("head", "torso", "tail")},
}  # fmt: skip
SWEPT_SCORES = ("fixed.example_f1", "tuned.example_f1", "tuned.macro_f1")
EMPTY = "\nNo run has been added yet.\n"
NOT_RUN = "no run"


def results_page(folder: Path, stem: str = "results") -> str:
    """The whole page; figures of that stem are drawn beside it.

    What there is to say about a data set beside its rows stands in `DATASET.md` among them.
    """
    by_dataset = all_results(folder)
    everything = [record for records in by_dataset.values() for record in records]
    parts = [HEAD, bests_section(everything), standings_section(everything, stem)]
    for dataset, records in by_dataset.items():
        parts.append(f"\n## {dataset}\n")
        splits = {record.split for record in records if record.fraction == 1}
        for table in sorted({record.table for record in records}, key=_whole_first):
            members = [record for record in records if record.table == table]
            parts.append(_section(members, _comparable(members[0], splits)))
        parts += [_sweep_section(sweep, stem) for sweep in find_sweeps(records)]
        parts += [f"\n{note.read_text('utf-8')}" for note in folder.glob(f"{dataset}.md")]
    parts.append(left_out_section(folder))
    return "".join(parts) if by_dataset else HEAD + EMPTY


def sweep_figure_name(stem: str, sweep: Sweep) -> str:
    """The file beside the page that draws a sweep."""
    split = sweep.split.replace("/", "-") + f"-{sweep.split_seed}" * bool(sweep.split_seed)
    return f"{stem}-{sweep.dataset}-{split}-{sweep.setting}.svg"


def swept_scores(sweep: Sweep) -> dict[str, str]:
    """What is shown of a sweep, by title."""
    group = next(iter(next(iter(sweep.lines.values())).values()))
    kept = kept_scores(group[0].scores)
    shown = SWEPT_SCORES if kept is KEPT_SCORES else kept[:2]
    return {score: score_title(score) for score in shown}


def _sweep_section(sweep: Sweep, stem: str) -> str:
    """Methods by the value of one setting."""
    title = "share of the training rows" if sweep.setting == FRACTION else f"`{sweep.setting}`"
    lines = [f"### {sweep.dataset}: by {title}", "", f"Split {sweep.split}.", ""]
    lines.append("| method | score | " + " | ".join(f"{v:g}" for v in sweep.values) + " |")
    lines.append("|---|---|" + "---|" * len(sweep.values))
    for method in sweep.lines:
        for score, name in swept_scores(sweep).items():
            means = sweep.means(method, score)
            cells = [str(means.get(value, "")) for value in sweep.values]
            lines.append(f"| {method} | {name} | " + " | ".join(cells) + " |")
    lines += ["", f"![scores by {sweep.setting}]({sweep_figure_name(stem, sweep)})"]
    return "\n" + "\n".join(lines) + "\n"


def _whole_first(table: tuple[str, int, float]) -> tuple[str, int, float]:
    split, seed, fraction = table
    return split, seed, -fraction


def _comparable(record: Record, splits: set[str]) -> Numbers:
    """Numbers made on all training rows, beside runs on the paper's split where there are any."""
    numbers: Numbers = {}
    for method, row in published(record.dataset).items() if record.fraction == 1 else ():
        for score, number in row.items():
            theirs = number.paper.split_of(record.dataset)
            if theirs == record.split or theirs not in splits:
                numbers.setdefault(method, {})[score] = number
    return numbers


def _section(records: Sequence[Record], numbers: Numbers) -> str:
    """One table of methods on the same rows, its sources, and the command that repeats it."""
    first = records[0]
    board = leaderboard(first.dataset, first.split) if first.fraction == 1 else {}
    lines = [_rows_sentence(first), "", *_table(records, numbers), "", *_tail_table(records, board)]
    for paper in _papers(numbers | board):
        theirs = paper.split_of(first.dataset)
        where = f"split {theirs}" if theirs == first.split else f"split {theirs}, unlike ours"
        lines += [f"{paper.name}: {paper.citation}; {paper.protocol}; {where}. {paper.note}", ""]
    lines += ["<!-- run short -->", "```sh", *_commands(records), "```"]
    return "\n" + "\n".join(lines) + "\n"


def _rows_sentence(record: Record) -> str:
    share = "all" if record.fraction == 1 else f"{record.fraction:g} of the"
    return f"Split {record.split}, split seed {record.split_seed}, {share} training rows."


def _papers(numbers: Numbers) -> list[Paper]:
    papers = {
        number.paper.name: number.paper for row in numbers.values() for number in row.values()
    }
    return list(papers.values())


def _table(records: Sequence[Record], numbers: Numbers) -> Iterable[str]:
    kept = kept_scores(records[0].scores)
    scores = list(kept)
    if kept is KEPT_SCORES:
        tuned = [score for score in kept if not score.startswith("fixed.")]
        scores = ["fixed.example_f1", *tuned, "fixed.precision@1"]
    settings = dict.fromkeys(record.setting for record in records)
    groups = {
        setting: [record for record in records if record.setting == setting] for setting in settings
    }
    best = {
        score: max(goodness(mean_score(group, score), score) for group in groups.values())
        for score in scores
    }
    yield "| " + " | ".join(["method", "seeds", *map(score_title, scores), "seconds"]) + " |"
    yield "|---|--:|" + "---|" * len(scores) + "--:|"
    for setting, group in groups.items():
        known = numbers.get(setting[0], {})
        cells = [_cell(group, score, known.get(score), best[score]) for score in scores]
        seconds = sum(record.seconds for record in group) / len(group)
        yield "| " + " | ".join([group[0].name, str(len(group)), *cells, f"{seconds:.0f}"]) + " |"
    for method in numbers:
        if all(method != name for name, _, _ in settings):
            known = numbers[method]
            cells = [_cell([], score, known.get(score), best[score]) for score in scores]
            yield "| " + " | ".join([method, "0", *cells, ""]) + " |"


def _tail_table(records: Sequence[Record], board: Numbers) -> Iterable[str]:
    """Frequent against rare labels, of the runs that measured them; others' programs below."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if set(TAIL_SCORES) <= set(record.scores):
            groups.setdefault(record.setting, []).append(record)
    if not groups:
        return
    means = {
        setting: {score: mean_score(group, score) for score in TAIL_TABLE}
        for setting, group in groups.items()
    }
    best = {s: max(mean.value for row in means.values() if (mean := row[s])) for s in TAIL_TABLE}
    yield "Frequent and rare labels, by thirds of the training frequencies (R@10: recall of pairs):"
    yield ""
    yield "| " + " | ".join(["method", "seeds", *TAIL_TABLE.values()]) + " |"
    yield "|---|--:|" + "---|" * len(TAIL_TABLE)
    for setting, row in means.items():
        cells = [f"**{m}**" if m and m.value == best[s] else str(m) for s, m in row.items()]
        yield "| " + " | ".join([groups[setting][0].name, str(len(groups[setting])), *cells]) + " |"
    for method, known in board.items():
        name = f"{method}, {next(iter(known.values())).paper.name}"
        cells = [_theirs(known[score]) if score in known else "" for score in TAIL_TABLE]
        yield "| " + " | ".join([name, "", *cells]) + " |"
    yield ""


def _cell(records: Sequence[Record], score: str, number: Published | None, best: float) -> str:
    mean = mean_score(records, score)
    ours = NOT_RUN if mean is None else str(mean)
    if mean is not None and goodness(mean, score) == best:
        ours = f"**{ours}**"
    if number is None:
        return ours if records else ""
    theirs = _theirs(number)
    return f"{ours} ({theirs}{'' if mean is None else f', {mean.value - number.value:+.4f}'})"


def _theirs(number: Published) -> str:
    return f"{number.value:.4f}{'?' * number.is_doubtful}"


def _commands(records: Sequence[Record]) -> Iterable[str]:
    """One comparison for each preset; runs with other changes have their own commands."""
    first = records[0]
    for preset in dict.fromkeys(record.preset for record in records):
        members = [record for record in records if record.preset == preset and not record.changed]
        if members:
            methods = ",".join(dict.fromkeys(record.method for record in members))
            words = ["python", "-m", "train", "compare", "--dataset", first.dataset]
            words += ["--methods", methods, "--seeds", str(1 + max(r.seed for r in members))]
            words += ["--split", first.split]
            words += ["--split-seed", str(first.split_seed)] * bool(first.split_seed)
            words += ["--fraction", f"{first.fraction:g}"] * (first.fraction != 1)
            words += ["--preset", preset] * (preset != "auto")
            yield shlex.join(words)
    yield from dict.fromkeys(record.command for record in records if record.changed)
