"""What a person sees of a comparison when it is done: the leaderboard, the figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from train.display import SHOWN_RANKING_METRICS, SHOWN_SET_METRICS
from train.errors import ConfigError, did_you_mean, needs_extra
from train.evidence import Mean, Record, goodness, mean_score
from train.metrics.suite import KS
from train.published import Numbers

SLICED = {
    f"pair_recall@{k}_quantile_{part}": f"R@{k} {part}"
    for k in KS
    for part in ("head", "torso", "tail")
}
RANKING = SHOWN_RANKING_METRICS | {f"recall@{k}": f"R@{k}" for k in KS} | SLICED
TITLES = SHOWN_SET_METRICS | RANKING
GROUPS = {
    "fixed": "at 0.5",
    "tuned": "tuned",
    "per_label": "per label",
    "oracle": "oracle",
    "validation": "validation",
}
MARKERS = "os^Dv<>pPX*hd"
COMPLETE = ("fixed", "validation")
"""Groups that have the ranking metrics too."""
DEFAULT_SCORES = (
    "fixed.example_f1",
    "tuned.example_f1",
    "tuned.micro_f1",
    "tuned.macro_f1",
    "tuned.hamming_accuracy",
    "fixed.precision@1",
)
"""SEAL's, and the five of C-GMVAE."""


def score_name(word: str) -> str:
    """`GROUP.METRIC` of what the user wrote; a metric alone is meant at 0.5."""
    group, dot, metric = word.strip().rpartition(".")
    group = group if dot else "fixed"
    if group not in GROUPS:
        raise ConfigError(f"--metric {word} has no such group; {did_you_mean(group, GROUPS)}")
    known = TITLES if group in COMPLETE else SHOWN_SET_METRICS
    if metric not in known:
        raise ConfigError(f"--metric {word} is not known; {did_you_mean(metric, known)}")
    return f"{group}.{metric}"


def score_title(score: str) -> str:
    """How a table calls a score."""
    group, _, metric = score.partition(".")
    if group == "fixed" and metric in RANKING:
        return TITLES[metric]  # no threshold is involved
    return f"{TITLES[metric]} {GROUPS[group]}"


def by_method(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each method, in the order in which methods first appear."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.method, []).append(record)
    return groups


def _plain_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)


def leaderboard(records: Sequence[Record], scores: Sequence[str]) -> Table:
    """Mean ± deviation over seeds; the best of the first score comes first."""
    table = _plain_table()
    table.add_column("method", style="bold", overflow="fold")
    table.add_column("runs", justify="right")
    for score in scores:
        # Without the hyphen the title can be broken into lines: the table fits into 80 columns.
        table.add_column(score_title(score).replace("-", " "), justify="right", width=8)
    table.add_column("seconds", justify="right")
    means = {
        method: (members, [mean_score(members, score) for score in scores])
        for method, members in by_method(records).items()
    }
    best = {
        score: max(goodness(row[i], score) for _, row in means.values())
        for i, score in enumerate(scores)
    }
    in_order = sorted(means.items(), key=lambda item: -goodness(item[1][1][0], scores[0]))
    for method, (members, row) in in_order:
        cells = [
            Text(
                str(mean or "").replace(" ± ", "\n±"),
                "bold" if goodness(mean, score) == best[score] else "",
            )
            for mean, score in zip(row, scores, strict=True)
        ]
        seconds = sum(record.seconds for record in members) / len(members)
        table.add_row(method, str(len(members)), *cells, f"{seconds:.1f}")
    return table


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """A score of ours beside the one that a paper prints."""

    method: str
    score: str
    ours: Mean
    paper: Mean
    is_doubtful: bool
    source: str


def paper_rows(records: Sequence[Record], numbers: Numbers) -> tuple[list[PaperRow], list[str]]:
    """What papers have for these methods, and how each made it."""
    rows, notes = [], {}
    for method, members in by_method(records).items():
        for score, number in numbers.get(method, {}).items():
            mean, paper = mean_score(members, score), number.paper
            if mean is None:
                continue
            rows.append(
                PaperRow(
                    method=method,
                    score=score,
                    ours=mean,
                    paper=Mean(number.value, number.deviation),
                    is_doubtful=number.is_doubtful,
                    source=paper.name,
                )
            )
            notes[paper.name] = f"{paper.name}: {paper.citation}; {paper.protocol}, split "
            theirs, ours = paper.split_of(members[0].dataset), members[0].split
            notes[paper.name] += theirs if theirs == ours else f"{theirs}, ours {ours}"
    return rows, list(notes.values())


def paper_table(records: Sequence[Record], numbers: Numbers) -> Table | None:
    """Ours beside the papers'; None where no paper has numbers for these methods."""
    rows, notes = paper_rows(records, numbers)
    table = _plain_table()
    for column in ("method", "score", "ours", "paper", "difference", "of"):
        table.add_column(column, justify="right" if column in ("ours", "difference") else "left")
    for row in rows:
        table.add_row(
            row.method,
            score_title(row.score),
            str(row.ours),
            f"{row.paper}{'?' if row.is_doubtful else ''}",
            f"{row.ours.value - row.paper.value:+.4f}",
            row.source,
        )
    table.caption, table.caption_justify = "\n".join(notes), "left"
    return table if rows else None


def check_plot(path: Path, n_shares: int, n_scores: int) -> None:
    """Refuse, before any training, a figure that cannot be drawn after it."""
    if n_shares < 2 and n_scores != 2:
        raise ConfigError(
            "--plot draws a score by share of the rows, or two against each other: add "
            "--fraction 0.1,0.5,1 or --metric with two metrics"
        )
    if path.suffix not in (".png", ".svg") or not path.parent.is_dir():
        raise ConfigError(f"--plot {path}: name a .png or .svg file in a folder that exists")
    with needs_extra("report", "--plot"):
        import matplotlib  # noqa: F401, PLC0415 - of the extra, which may be missing


def save_trade_off_plot(path: Path, records: Sequence[Record], scores: Sequence[str]) -> None:
    """Draw the second score of each method against the first, means and deviations over seeds."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - of an extra, see check_plot

    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.add_subplot(
        xlabel=score_title(scores[0]), ylabel=score_title(scores[1]), title=records[0].dataset
    )
    for place, (method, members) in enumerate(by_method(records).items()):
        means = [mean_score(members, score) for score in scores[:2]]
        if None not in means:
            (x, y) = [mean for mean in means if mean is not None]
            axes.errorbar(
                x.value,
                y.value,
                xerr=x.deviation or 0,
                yerr=y.deviation or 0,
                marker=MARKERS[place % len(MARKERS)],
                capsize=3,
                linestyle="none",
                label=method,
            )
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small")
    _save(figure, path)


def save_low_data_plot(path: Path, records: Sequence[Record], score: str, baseline: str) -> None:
    """Draw the score of each method, over that of the baseline, by share of the training rows."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - of an extra, see check_plot

    shares = sorted({record.fraction for record in records})
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot(
        xscale="log",
        xlabel="share of the training rows",
        ylabel=f"{score_title(score)} over that of {baseline}",
        title=records[0].dataset,
    )
    for method in by_method(records):
        points = _relative(records, method, baseline, score)
        used = [share for share in shares if share in points]
        axes.errorbar(
            used,
            [points[share].value for share in used],
            yerr=[points[share].deviation or 0 for share in used],
            marker="o",
            capsize=3,
            label=method,
        )
    axes.set_xticks(shares, [f"{share:g}" for share in shares])
    axes.set_xticks([], minor=True)
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:  # noqa: ANN401 - matplotlib's, of an extra
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise ConfigError(f"--plot {path} cannot be written: {error.strerror}") from error


def _relative(
    records: Sequence[Record], method: str, baseline: str, score: str
) -> dict[float, Mean]:
    """By share: mean and deviation over seeds, both divided by the baseline's mean."""
    points = {}
    for share in {record.fraction for record in records}:
        here = by_method([record for record in records if record.fraction == share])
        ours, theirs = (mean_score(here.get(name, []), score) for name in (method, baseline))
        if ours and theirs and theirs.value:
            spread = None if ours.deviation is None else ours.deviation / theirs.value
            points[share] = Mean(ours.value / theirs.value, spread)
    return points
