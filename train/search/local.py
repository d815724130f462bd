"""Trials one after the other, in this process; others may do the same with the same folder."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from train.display import TrainingDisplay
from train.search.plan import Search
from train.search.study import Claim, SharedStudy
from train.search.trial import Ending, run_trial


def search_here(
    search: Search, study: SharedStudy, trials: int, console: Console,
    tell: Callable[[Claim, Ending], None],
) -> bool:  # fmt: skip
    """Work until no trial is left to begin; whether all that was begun here was ended."""
    while (claim := study.claim(trials)) is not None:
        run = search.run(claim.values, study.trial_folder(claim.number))
        live = search.options.progress and console.is_terminal
        with TrainingDisplay(console, enabled=live) as display:
            ending = run_trial(run, display, reporter(claim))
        keep(study, claim, ending)
        tell(claim, ending)
        if ending.state == "interrupted":
            return False
    return True


def reporter(claim: Claim) -> Callable[[int, float], bool]:
    """Tells the storage how a trial goes; places that it knows from before are not told again."""
    known = set(claim.trial.study.trials[claim.number].intermediate_values)

    def report(place: int, score: float) -> bool:
        if place not in known:
            claim.trial.report(score, place)
        return claim.trial.should_prune()

    return report


def keep(study: SharedStudy, claim: Claim, ending: Ending) -> None:
    """Write how a trial ended into the storage."""
    if ending.state == "finished":
        study.finish(claim, ending.value)
    elif ending.state == "given up":
        study.give_up(claim)
    elif ending.state == "failed":
        study.fail(claim, ending.reason)
    else:
        study.leave(claim)
