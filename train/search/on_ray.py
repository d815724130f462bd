"""Trials on the machines of a Ray cluster, as many at a time as its processors and GPUs allow.

The driver alone claims trials and keeps how they ended; an actor beside it takes the scores of
epochs. A trial whose worker dies is begun again elsewhere, from its last saved epoch where the
folder of the search is on a file system that all machines share.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from optuna.trial import Trial
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from train.interruption import interruptions
from train.planned import PlannedRun
from train.search.local import keep
from train.search.plan import Search
from train.search.study import Claim, SharedStudy, open_study
from train.search.trial import Ending, Silent, run_trial

POLL_SECONDS = 1.0
RETRIES = 3
"""How often a trial is begun again after its worker has died."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Where trials run, and what each of them takes."""

    address: str | None
    """Of the cluster; None: one is started here."""
    cpus: float
    gpus: float


class Judge:
    """Keeps the scores of epochs, and says which trials to give up."""

    def __init__(self, folder: Path) -> None:
        self.study = open_study(folder)

    def report(self, number: int, place: int, score: float) -> bool:
        """What `train.search.local.reporter` does, for a trial that runs elsewhere."""
        known = self.study.trials[number]
        trial = Trial(self.study, known._trial_id)
        if place not in known.intermediate_values:
            trial.report(score, place)
        return trial.should_prune()


def _run_elsewhere(run: PlannedRun, number: int, judge: Any) -> Ending:  # noqa: ANN401 - a handle
    def report(place: int, score: float) -> bool:
        return bool(ray.get(judge.report.remote(number, place, score)))

    return run_trial(run, Silent(), report)


def search_on_ray(
    search: Search, study: SharedStudy, trials: int, resources: Resources,
    tell: Callable[[Claim, Ending], None],
) -> bool:  # fmt: skip
    """Work until no trial is left to begin; whether all that was begun here was ended."""
    ray.init(
        address=resources.address, include_dashboard=False, log_to_driver=False,
        logging_level=logging.ERROR, ignore_reinit_error=True,
    )  # fmt: skip
    # Beside the driver, which has the storage; other machines come and go.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    judge = ray.remote(Judge).options(num_cpus=0, scheduling_strategy=here).remote(search.folder)
    begin = ray.remote(_run_elsewhere).options(
        num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=RETRIES
    )
    running: dict[Any, Claim] = {}
    with interruptions() as interrupted:
        while not interrupted.is_set():
            while len(running) < _room(resources) and (claim := study.claim(trials)) is not None:
                run = search.run(claim.values, study.trial_folder(claim.number))
                running[begin.remote(run, claim.number, judge)] = claim
            if not running:
                return True
            done, _ = ray.wait(list(running), timeout=POLL_SECONDS)
            for reference in done:
                _end(study, running.pop(reference), _ending(reference), tell)
            if not done and not _room(resources):
                time.sleep(POLL_SECONDS)  # no machine is there at present
        for reference, claim in running.items():
            ray.cancel(reference, force=True)
            _end(study, claim, Ending("interrupted"), tell)
    return False


def _end(
    study: SharedStudy, claim: Claim, ending: Ending, tell: Callable[[Claim, Ending], None]
) -> None:
    keep(study, claim, ending)
    tell(claim, ending)


def _ending(reference: Any) -> Ending:  # noqa: ANN401 - Ray's
    try:
        ending: Ending = ray.get(reference)
    except ray.exceptions.RayError as error:
        return Ending("failed", reason=str(error).strip().splitlines()[0])
    return ending


def _room(resources: Resources) -> int:
    """How many trials the cluster, as it is now, can run at a time."""
    there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    wanted = {"CPU": resources.cpus, "GPU": resources.gpus}
    return min(int(there.get(name, 0.0) / each) for name, each in wanted.items() if each > 0)
