"""A finished run, read back from its folder, with its validation and test rows scored again."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import nn

from train import methods
from train.batches import scoring_order
from train.checkpoint import Checkpoint, OnInputs, load_checkpoint
from train.config import config_from
from train.data import MultiLabelData, Split, load_dataset
from train.errors import ConfigError, DataError, UserError
from train.loop import predict as score
from train.metrics import example_f1, predict
from train.problem import Problem, make_problem
from train.run import RunFolder
from train.texts import encoded_like
from train.thresholds import FIXED_THRESHOLD
from train.top_scores import keeps_best_only

TIMING_SECONDS = 0.2
TOLERANCE = 0.005
"""How far the test score may be from the recorded one: other machines round otherwise."""


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run with everything that the report looks at."""

    folder: Path
    name: str
    """Of the run, among those of one report."""
    checkpoint: Checkpoint
    metrics: dict[str, Any]
    history: list[dict[str, float]]
    data: MultiLabelData
    problem: Problem
    validation_scores: np.ndarray
    test_scores: np.ndarray
    seconds_to_score: float
    """Of the test rows."""
    test_rows: np.ndarray

    @property
    def dataset(self) -> str:
        """Name of its data set."""
        return self.checkpoint.dataset

    @property
    def has_masks(self) -> bool:
        """Whether its rows are images, and labels their pixels."""
        return self.checkpoint.task == "segmentation"

    @property
    def fixed(self) -> dict[str, float]:
        """Every test metric at threshold 0.5."""
        scores: dict[str, float] = self.metrics["scores"]["fixed"]
        return scores

    @property
    def kind(self) -> str:
        """The method with its variant, such as `seal-nce`."""
        config_class = methods.load(self.checkpoint.method).Config
        config = config_from(self.checkpoint.config, config_class, source="the checkpoint")
        return "-".join(filter(None, [self.checkpoint.method, config.variant]))

    @property
    def seconds_per_epoch(self) -> float | None:
        """Median over the epochs of the last stage, the one that trains what the run is named for.

        Runs from before epochs were timed have the mean over all stages, and methods that are
        fitted in one go have none.
        """
        if not self.history:
            return None
        last = self.history[-1].get("stage")
        timed = [e["seconds"] for e in self.history if "seconds" in e and e["stage"] == last]
        if timed:
            return float(np.median(timed))
        return float(self.metrics["seconds"]) / len(self.history)

    @cached_property
    def train_counts(self) -> np.ndarray:
        """Training rows of each label."""
        return np.asarray(self.problem.train.targets.sum(axis=0)).ravel()

    @cached_property
    def predicted(self) -> sparse.csr_array:
        """Label sets of the test rows at threshold 0.5."""
        return sparse.csr_array(predict(self.test_scores, FIXED_THRESHOLD).astype(np.uint8))

    def embeddings(self, rows: np.ndarray) -> np.ndarray | None:
        """Where the run's network puts some of the test rows, (rows, size); None if nowhere."""
        embedder = self.checkpoint.embedder()
        if embedder is None:
            return None
        embed = OnInputs(embedder)
        wanted = torch.from_numpy(rows)
        parts = [index[torch.isin(index, wanted)] for index in scoring_order(self.problem.test.x)]
        batches = [part for part in parts if len(part)]
        with torch.no_grad():
            vectors = [embed(self.problem.test.x.take(index)) for index in batches]
        order = torch.cat(batches).argsort()
        return torch.cat(vectors)[order].double().numpy()

    @property
    def true(self) -> sparse.csr_array:
        """Label sets of the test rows as they are."""
        return self.problem.test.targets


def load_runs(paths: Sequence[Path]) -> list[FinishedRun]:
    """Read every run; a data set that several share is loaded once."""
    folders = [_folder(path) for path in paths]
    places = [folder.resolve() for folder in folders]
    twice = next((place for i, place in enumerate(places) if place in places[:i]), None)
    if twice is not None:
        raise ConfigError(f"the run {twice} is given twice: name each run once")
    loaded: dict[str, MultiLabelData] = {}
    names = _short_names(places)
    return [_load(*pair, loaded) for pair in zip(folders, names, strict=True)]


def _folder(path: Path) -> Path:
    """The run folder that a path means."""
    if path.name == "model.pt" and not path.is_dir():
        path = path.parent
    run = RunFolder(path)
    if not run.metrics.is_file() and not run.resume.is_file():
        raise ConfigError(
            f"{path} is no run folder: give what `python -m train METHOD` wrote, or its model.pt"
        )
    is_whole = all(file.is_file() for file in (run.model, run.metrics, run.split))
    if not is_whole or not _json(run.metrics).get("finished"):
        raise ConfigError(
            f"the run in {path} is not finished: end it with its own command and --resume"
        )
    return path


def _short_names(folders: Sequence[Path]) -> list[str]:
    """The last parts of each path, as many as tell them apart."""
    depth = 1
    while len({folder.parts[-depth:] for folder in folders}) < len(folders):
        depth += 1
    return ["/".join(folder.parts[-depth:]) for folder in folders]


def _load(folder: Path, name: str, loaded: dict[str, MultiLabelData]) -> FinishedRun:
    run = RunFolder(folder)
    checkpoint, metrics = load_checkpoint(run.model), _json(run.metrics)
    if checkpoint.task == "tagging":
        raise ConfigError(
            f"{folder} was trained on words, and reports are about labels of rows and masks: "
            "metrics.json has F1 by role"
        )
    # Runs from before `data` was recorded have the name of the data set alone.
    source = metrics.get("data") or {"dataset": checkpoint.dataset}
    key = json.dumps(source, sort_keys=True)
    if key not in loaded:
        loaded[key] = _load_data(source, folder)
    split = _split(run, loaded[key], checkpoint)
    # The predictor of a checkpoint takes rows as they are and scales them itself.
    cpu = torch.device("cpu")
    texts = encoded_like(loaded[key], checkpoint.text, checkpoint.shape, cpu)
    problem = make_problem(loaded[key], split, cpu, "none", texts)
    check_size(problem, folder)
    predictor = OnInputs(checkpoint.predictor())
    validation = score(predictor, problem.validation.x, problem.device)
    test, seconds = _timed_scores(predictor, problem)
    _check_unchanged(folder, test, problem, metrics)
    return FinishedRun(
        folder=folder,
        name=name,
        checkpoint=checkpoint,
        metrics=metrics,
        history=_history(run),
        data=loaded[key],
        problem=problem,
        validation_scores=validation,
        test_scores=test,
        seconds_to_score=seconds,
        test_rows=split.test,
    )


def check_size(problem: Problem, folder: Path) -> None:
    """Refuse rows and labels so many that no table of all scores is held."""
    if any(keeps_best_only(*part.targets.shape) for part in (problem.validation, problem.test)):
        raise ConfigError(
            f"the report scores every label of every row, and {folder} has too many: "
            "its metrics.json has the scores of the best ones"
        )


def _history(run: RunFolder) -> list[dict[str, float]]:
    """What each epoch gave; nothing for a method that is fitted in one go."""
    if not run.history.is_file():
        return []
    return [json.loads(line) for line in run.history.read_text("utf-8").splitlines()]


def _timed_scores(predictor: nn.Module, problem: Problem) -> tuple[np.ndarray, float]:
    """Scores of the test rows, and the seconds of the fastest try; quick networks get more."""
    fastest, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < TIMING_SECONDS:
        started = time.perf_counter()
        scores = score(predictor, problem.test.x, problem.device)
        fastest = min(fastest, time.perf_counter() - started)
    return scores, fastest


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is damaged: train the run again")
    return values


def _load_data(source: dict[str, Any], folder: Path) -> MultiLabelData:
    options = dict(source)
    directory = options.pop("data_dir", None)
    try:
        return load_dataset(
            options.pop("dataset"), data_dir=directory and Path(directory), **options
        )
    except UserError as error:
        raise DataError(
            f"the data set of {folder} is not where the run found it, and the report needs its "
            f"rows: {error}"
        ) from error


def _split(run: RunFolder, data: MultiLabelData, checkpoint: Checkpoint) -> Split:
    with np.load(run.split) as parts:
        rows = {name: parts[name] for name in ("train", "validation", "test")}
    last_row = max(part.max(initial=-1) for part in rows.values())
    if list(data.labels) != checkpoint.labels or last_row >= data.n_rows:
        raise DataError(
            f"{data.name} has other rows or labels than when {run.path} was trained: train it again"
        )
    return Split(**rows, rule=checkpoint.split["rule"])


def _check_unchanged(
    folder: Path, scores: np.ndarray, problem: Problem, metrics: dict[str, Any]
) -> None:
    recorded = metrics["scores"]["fixed"]["example_f1"]
    now = example_f1(predict(scores, FIXED_THRESHOLD), problem.test.targets)
    if abs(now - recorded) > TOLERANCE:
        raise DataError(
            f"the model in {folder} now has example-F1 {now:.4f} on its test rows, but its run "
            f"recorded {recorded:.4f}: the data set or the model was changed; train it again"
        )
