"""The trials of a search, in one SQLite file that processes share and that survives their death.

SQLite and not a journal: a process that is killed while it writes leaves neither half a line nor a
lock behind. Who works on a trial holds a lock on a file in its folder, which the system drops with
the process. A trial that is said to run and whose lock is free belongs to a dead process: the next
one to look for work goes on with it, from its last saved epoch.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from train.errors import ConfigError
from train.search.plan import Search
from train.search.space import suggested

BUSY_SECONDS = 60
"""How long a process waits for others to finish writing."""
STARTUP_TRIALS = 5
"""Trials that must have ended before others are given up for being worse than their median."""
WARMUP_EPOCHS = 4
"""Epochs that every trial may take."""


@dataclass(frozen=True)
class Claim:
    """A trial that this process works on, until the lock is closed."""

    trial: Trial
    values: dict[str, Any]
    lock: TextIOWrapper

    @property
    def number(self) -> int:
        """Of the trial, from 0."""
        return self.trial.number


class SharedStudy:
    """Claims trials and keeps how they ended."""

    def __init__(self, search: Search) -> None:
        """Open the search in its folder, or begin it; one with another identity is refused."""
        folder, identity = search.folder, search.identity
        self.folder, self.space, self.seed = folder, search.space, search.options.seed
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot write to {folder}: {error.strerror}; choose another --out"
            ) from error
        with self._alone():
            self.study = open_study(folder)
            known = self.study.user_attrs.get("identity")
            if known is None:
                if not self.trials():  # else killed before the next line
                    self.study.enqueue_trial(search.first)
                self.study.set_user_attr("identity", json.loads(json.dumps(identity)))
            else:
                _check_same(folder, known, json.loads(json.dumps(identity)))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time: else two could find the same trial, or begin one too many."""
        with (self.folder / "search.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def trial_folder(self, number: int) -> Path:
        """The run folder of a trial."""
        return self.folder / "trials" / f"{number:04d}"

    def trials(self) -> list[FrozenTrial]:
        """All that were begun, in order."""
        return self.study.get_trials(deepcopy=False)

    def claim(self, most: int) -> Claim | None:
        """A trial of a dead process, or else a new one; None where `most` have been begun."""
        with self._alone():
            trials = self.trials()
            # The same history gives the same next trial, whichever process asks.
            seed = (self.seed * 1_000_003 + len(trials)) % 2**32
            self.study.sampler = optuna.samplers.TPESampler(seed=seed)
            for known in trials:
                lock = self._lock(known.number) if known.state == TrialState.RUNNING else None
                if lock is None:
                    continue
                # It may have ended since the list was read: its process lets go of the lock then.
                if self.trials()[known.number].state == TrialState.RUNNING:
                    return self._claim(Trial(self.study, known._trial_id), lock)
                lock.close()
            if sum(trial.state != TrialState.WAITING for trial in trials) >= most:
                return None
            trial = self.study.ask()
            lock = self._lock(trial.number)
            assert lock is not None  # noqa: S101 - nobody else knows of the trial
            return self._claim(trial, lock)

    def _claim(self, trial: Trial, lock: TextIOWrapper) -> Claim:
        return Claim(trial, suggested(trial, self.space), lock)

    def _lock(self, number: int) -> TextIOWrapper | None:
        folder = self.trial_folder(number)
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return None
        return lock

    def finish(self, claim: Claim, value: float) -> None:
        """Keep the validation score of a trial."""
        self.study.tell(claim.trial, value)
        claim.lock.close()

    def give_up(self, claim: Claim) -> None:
        """Keep that a trial was worse than others and not trained to its end."""
        self.study.tell(claim.trial, state=TrialState.PRUNED)
        claim.lock.close()

    def fail(self, claim: Claim, reason: str) -> None:
        """Keep that a trial could not be trained, and why."""
        claim.trial.set_user_attr("reason", reason)
        self.study.tell(claim.trial, state=TrialState.FAIL)
        claim.lock.close()

    def leave(self, claim: Claim) -> None:
        """Let go of a trial that was interrupted: the next one goes on with it."""
        claim.lock.close()


def open_study(folder: Path) -> optuna.Study:
    """The study in the folder, which is made if there is none."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # we say ourselves how trials end
    storage = optuna.storages.RDBStorage(
        f"sqlite:///{folder.resolve() / 'search.db'}",
        engine_kwargs={"connect_args": {"timeout": BUSY_SECONDS}},
    )
    pruner = optuna.pruners.MedianPruner(STARTUP_TRIALS, WARMUP_EPOCHS)
    return optuna.create_study(
        study_name="search", storage=storage, direction="maximize", pruner=pruner,
        load_if_exists=True,
    )  # fmt: skip


def _check_same(folder: Path, known: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        if known.get(name) != value:
            raise ConfigError(
                f"{folder} holds another search, with {name} {known.get(name)}, not {value}: give "
                "the same command to go on with it, or another --out"
            )
