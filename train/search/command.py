"""`python -m train search METHOD`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro
from optuna.trial import TrialState
from rich.console import Console

from train.display import or_say_why_not
from train.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, ConfigError, needs_extra
from train.options import reports_by_default
from train.run import write_text
from train.search.local import search_here
from train.search.plan import Search, plan_search
from train.search.results import best_table, finished, score, write_results
from train.search.study import Claim, SharedStudy
from train.search.trial import Ending

DESCRIPTION = """\
Search hyper-parameters by their score on validation rows. All flags of the method and of a single \
run can be given too: what they set stays as it is. The same command goes on with a search; given \
in several terminals, they share it."""
EXAMPLE = "python -m train search ce --dataset demo --trials 10 --epochs 5"


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search."""

    method: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="METHOD")]
    """The method whose hyper-parameters are searched."""
    trials: int = 20
    """Trials in all, with those of earlier commands and of other processes."""
    vary: Annotated[str, tyro.conf.arg(metavar="A,B,...")] = ""
    """Hyper-parameters to search; all with a known range unless told."""
    engine: Literal["local", "ray"] = "local"
    """`local`: one trial after the other, here; `ray`: on a Ray cluster."""
    address: str | None = None
    """Ray only: address of the cluster; without one it is started on this machine."""
    cpus_per_trial: float = 1.0
    """Ray only: processors that a trial takes."""
    gpus_per_trial: float = 0.0
    """Ray only: GPUs that a trial takes; 0.25: four trials share one."""
    out: Path | None = None
    """Folder of the search; unless told runs/DATASET/search-METHOD."""
    report: bool = field(default_factory=reports_by_default)
    """Write report.html into that folder: history, importance, every trial."""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ConfigError(f"--trials must be at least 1, got {self.trials}")
        if self.cpus_per_trial <= 0 or self.gpus_per_trial < 0:
            raise ConfigError("--cpus-per-trial must be positive, --gpus-per-trial not negative")
        ray_only = self.address or self.gpus_per_trial or self.cpus_per_trial != 1
        if self.engine == "local" and ray_only:
            raise ConfigError(
                "--address, --cpus-per-trial and --gpus-per-trial are for --engine ray: add it"
            )


def search_command(console: Console, argv: Sequence[str]) -> int:
    """Run trials until there are enough, then show the best."""
    options, words = _parse(console, argv)
    search = plan_search(options.method, words, options.vary, options.out)
    command = shlex.join(["python", "-m", "train", "search", *argv])
    engine = _engine(options, console)
    study = SharedStudy(search)
    for name, values in search.space.items():
        console.print(f"{name}: {values}", style="dim", highlight=False)
    is_done = engine(search, study, options.trials, _teller(console, study, options.trials))
    best = write_results(search, study)
    if options.report:
        with or_say_why_not(console):
            write_text(search.folder / "report.html", _page()(search, study, command))
            console.print(f"saved {search.folder / 'report.html'}", highlight=False, soft_wrap=True)
    return _end(console, search, study, best, is_done=is_done)


Teller = Callable[[Claim, Ending], None]
Engine = Callable[[Search, SharedStudy, int, Teller], bool]


def _engine(options: SearchOptions, console: Console) -> Engine:
    if options.engine == "local":
        return lambda search, study, trials, tell: search_here(search, study, trials, console, tell)
    with needs_extra("ray", "--engine ray"):
        from train.search import on_ray  # noqa: PLC0415 - may be missing

    resources = on_ray.Resources(
        address=options.address, cpus=options.cpus_per_trial, gpus=options.gpus_per_trial
    )
    return lambda search, study, trials, tell: on_ray.search_on_ray(
        search, study, trials, resources, tell
    )


def _page() -> Callable[[Search, SharedStudy, str], str]:
    with needs_extra("report", "a report"):
        from train.search.page import search_page  # noqa: PLC0415 - may be missing
    return search_page


def _teller(console: Console, study: SharedStudy, trials: int) -> Teller:
    """Says how each trial ended, and the best so far."""

    def tell(claim: Claim, ending: Ending) -> None:
        known = study.trials()
        ended = sum(trial.state.is_finished() for trial in known)
        told = ending.state + (f" with {ending.value:.4f}" if ending.state == "finished" else "")
        if ending.reason:
            told += f": {ending.reason}"
        done = finished(study)
        best = f"; best {score(done[0]):.4f}, trial {done[0].number}" if done else ""
        line = f"[{ended}/{trials}] trial {claim.number} {told}{best}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    return tell


def _end(
    console: Console, search: Search, study: SharedStudy, best: Path | None, *, is_done: bool
) -> int:
    if best is not None:
        console.print(best_table(search, study))
    if not is_done:
        console.print("interrupted: the same command goes on", highlight=False)
        return EXIT_INTERRUPTED
    elsewhere = sum(trial.state == TrialState.RUNNING for trial in study.trials())
    if elsewhere:
        console.print(f"{elsewhere} trials go on in other processes", highlight=False)
    if best is None:
        sys.stderr.write(f"error: no trial was finished; {search.folder / 'trials.csv'} says why\n")
        return EXIT_OK if elsewhere else EXIT_USAGE
    console.print("saved the best hyper-parameters. Next:", highlight=False)
    words = ["python", "-m", "train", search.method, "--dataset", search.options.dataset]
    told = shlex.join([*words, "--preset", str(best)])
    console.print(f"  {told}", highlight=False, soft_wrap=True)
    return EXIT_OK


def _parse(console: Console, argv: Sequence[str]) -> tuple[SearchOptions, list[str]]:
    try:
        options, words = tyro.cli(
            SearchOptions, prog="python -m train search", description=DESCRIPTION,
            args=list(argv), return_unknown_args=True,
        )  # fmt: skip
    except SystemExit as stop:
        if stop.code == EXIT_OK:  # after --help
            console.print(f"example: {EXAMPLE}", highlight=False, soft_wrap=True)
        raise
    return options, words
