"""One training run from options to run folder: load, split, fit, judge, save."""

from __future__ import annotations

import platform
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from train import methods, storage
from train.batches import TokenRows
from train.checkpoint import Checkpoint, save_checkpoint
from train.config import MethodConfig, TrainingConfig, config_values, flag
from train.data import (
    MultiLabelData,
    Split,
    load_dataset,
    make_split,
    propensity_constants,
)
from train.errors import ConfigError
from train.loop import (
    Position,
    cpu_weights,
    fit,
    is_finished,
    predict,
    restore,
    seed_everything,
    training_state,
)
from train.method import Method
from train.options import DataOptions, RunOptions
from train.problem import EncodedTexts, Problem, feature_matrix, make_problem, resolve_device
from train.revision import revision
from train.run import (
    RunFolder,
    open_run,
    write_config,
    write_history,
    write_metrics,
    write_split,
)
from train.scoring import Judgement, judge
from train.texts import encode_texts

PROBE_VALUES = 1 << 20
"""Numbers that the example rows in a checkpoint may hold together."""
PROBE_ROWS = 64
PROBE_TEXTS = 256
"""More than rows: the graph of a text encoder in 8 bits is judged by the labels of these, and with
64 of them one label more or less moves macro-F1 by as much as is allowed."""


class Display(Protocol):
    """Shows a run while it goes on."""

    def on_step(self, position: Position, n_steps: int, losses: dict[str, Tensor]) -> None:
        """A batch was done."""

    def on_epoch(self, position: Position) -> None:
        """An epoch was done."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything decided and loaded, nothing trained."""

    method_name: str
    config: MethodConfig
    options: RunOptions
    data: MultiLabelData
    split: Split
    texts: EncodedTexts | None
    problem: Problem
    run: RunFolder
    command: str
    commit: str | None
    """Of the checkout, read before training: later it may be another."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a run ended."""

    run: RunFolder
    judgement: Judgement
    position: Position
    interrupted: bool
    stages_left: int
    """Stages not begun; the model is untrained if there are any."""


def load_split(options: DataOptions) -> tuple[MultiLabelData, Split]:
    """Load the data set that the options name and cut it as they say."""
    data = load_dataset(options.dataset, data_dir=options.data_dir, **options.reader_options())
    split = make_split(data, options.split, options.split_seed, options.fraction)
    return data, split


def prepare(method_name: str, config: MethodConfig, options: RunOptions, command: str) -> Prepared:
    """Check all that can be checked before any work is done, then load the data."""
    if options.threads < 1:
        raise ConfigError(f"--threads must be at least 1, got {options.threads}")
    if options.resume and not isinstance(config, TrainingConfig):
        raise ConfigError(
            f"{method_name} is fitted in one go, so there is nothing to resume: leave out --resume"
        )
    torch.set_num_threads(options.threads)
    device = resolve_device(options.device)
    data, split = load_split(options)
    out = options.out or Path("runs") / data.name / f"{method_name}-{options.seed}"
    texts = encode_texts(data, split, config, device, progress=options.progress)
    problem = make_problem(data, split, device, config.scaling, texts)
    run = open_run(out, resume=options.resume, overwrite=options.overwrite)
    return Prepared(
        method_name=method_name,
        config=config,
        options=options,
        data=data,
        split=split,
        texts=texts,
        problem=problem,
        run=run,
        command=command,
        commit=revision(),
    )


def train(prepared: Prepared, display: Display) -> Result:
    """Train to the end or to an interruption; either way leave a valid `model.pt`.

    A method that is fitted in one go leaves nothing if interrupted: it has no half-way.
    """
    seed_everything(prepared.options.seed)
    with _flushed_denormals():
        if isinstance(prepared.config, TrainingConfig):
            return _train_in_steps(prepared, prepared.config, display)
        return _train_in_one_go(prepared)


@contextmanager
def _flushed_denormals() -> Iterator[None]:
    """Gradients of labels that are all but certain fall below 1e-38, where a CPU becomes slow."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        # The next one to compute in this process may need numbers that small.
        torch.set_flush_denormal(False)


def _train_in_one_go(prepared: Prepared) -> Result:
    started = time.monotonic()
    predictor = methods.load(prepared.method_name).fit(prepared.config, prepared.problem)
    position = Position(seconds=time.monotonic() - started)
    _write_settings(prepared)
    judgement = _finish(prepared, predictor, {}, position, finished=True)
    return Result(
        run=prepared.run, judgement=judgement, position=position, interrupted=False, stages_left=0
    )


def _train_in_steps(prepared: Prepared, config: TrainingConfig, display: Display) -> Result:
    method = methods.load(prepared.method_name).build(config, prepared.problem)
    position = _resumed(prepared, method) if prepared.options.resume else Position()
    _write_settings(prepared)
    with interruptions() as interrupted:
        fit(
            method,
            prepared.problem,
            config,
            seed=prepared.options.seed,
            position=position,
            observer=_Saving(prepared, method, display),
            should_stop=interrupted.is_set,
        )
        finished = is_finished(method, position, config)
        if not finished:
            _save_state(prepared, method, position)
        teacher = _take_best_weights(method, position)
        judgement = _finish(prepared, method.predictor, teacher, position, finished=finished)
    return Result(
        run=prepared.run,
        judgement=judgement,
        position=position,
        interrupted=not finished,
        stages_left=method.stages - 1 - position.stage,
    )


def _write_settings(prepared: Prepared) -> None:
    write_config(prepared.run, prepared.method_name, config_values(prepared.config))
    write_split(prepared.run, prepared.split)


class _Saving:
    """Saves the state at each epoch and passes all events on to the display."""

    def __init__(self, prepared: Prepared, method: Method, display: Display) -> None:
        self.prepared, self.method, self.display = prepared, method, display
        self.on_step = display.on_step

    def on_epoch(self, position: Position) -> None:
        _save_state(self.prepared, self.method, position)
        self.display.on_epoch(position)


def _save_state(prepared: Prepared, method: Method, position: Position) -> None:
    state = training_state(method, position)
    storage.save(
        {"schema": storage.SCHEMA_VERSION, "identity": _identity(prepared), **state},
        prepared.run.resume,
    )
    write_history(prepared.run, position.history)


def _identity(prepared: Prepared) -> dict[str, Any]:
    """What must be the same for a run to be the same run."""
    values = config_values(prepared.config)
    # Training longer is the usual reason to resume a finished run.
    for name in ("epochs", "patience"):
        del values[name]
    return {
        **values,
        "method": prepared.method_name,
        "dataset": prepared.data.name,
        "split": prepared.split.rule,
        "split_seed": prepared.options.split_seed,
        "fraction": prepared.options.fraction,
        "seed": prepared.options.seed,
        "train_rows": len(prepared.split.train),
    }


def _resumed(prepared: Prepared, method: Method) -> Position:
    state = storage.load(prepared.run.resume)
    for name, value in _identity(prepared).items():
        before = state["identity"].get(name)
        if before != value:
            raise ConfigError(
                f"the run in {prepared.run.path} has {flag(name)} {before}, not {value}: "
                "resume it with the same options, or start another with --out"
            )
    return restore(state, method)


@dataclass
class _Flag:
    """Whether somebody asked to stop."""

    raised: bool = False

    def is_set(self) -> bool:
        return self.raised


@contextmanager
def interruptions() -> Iterator[_Flag]:
    """Turn the first SIGINT or SIGTERM into a flag, so that the current step can finish."""
    stop = _Flag()
    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        stop.raised = True
        # A second one means it: give it back its usual effect.
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, ask_to_stop)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _take_best_weights(method: Method, position: Position) -> dict[str, Tensor]:
    """Leave the best epoch's weights in the predictor, if its last stage has had an epoch.

    Returns the weights of the teacher that go with them.
    """
    if position.stage + 1 == method.stages and position.best_weights:
        method.predictor.load_state_dict(position.best_weights)
        return position.best_teacher
    for stage in range(position.stage + 1, method.stages):  # interrupted before its last stage
        method.enter_stage(stage)
    return cpu_weights(method.teacher)


def _finish(
    prepared: Prepared,
    predictor: nn.Module,
    teacher: dict[str, Tensor],
    position: Position,
    *,
    finished: bool,
) -> Judgement:
    """Judge a trained predictor, and write `model.pt` and `metrics.json`."""
    problem = prepared.problem
    judgement = judge(
        problem,
        validation=predict(predictor, problem.validation.x, problem.device),
        test=predict(predictor, problem.test.x, problem.device),
        constants=propensity_constants(prepared.data.name),
    )
    checkpoint = _checkpoint(prepared, position, cpu_weights(predictor), teacher, judgement)
    save_checkpoint(checkpoint, prepared.run.model)
    write_metrics(prepared.run, {**_metrics(prepared, position, judgement), "finished": finished})
    return judgement


def _checkpoint(
    prepared: Prepared,
    position: Position,
    weights: dict[str, Tensor],
    teacher: dict[str, Tensor],
    judgement: Judgement,
) -> Checkpoint:
    data, scaling = prepared.data, prepared.problem.scaling
    return Checkpoint(
        name=f"{data.name}-{prepared.method_name}",
        method=prepared.method_name,
        task="multilabel",
        config=config_values(prepared.config),
        dataset=data.name,
        shape=prepared.problem.shape.values(),
        labels=list(data.labels),
        features=list(data.features),
        scaling=None if scaling is None else scaling.tensors(),
        weights=weights,
        teacher=teacher,
        thresholds={"tuned": judgement.threshold, "per_label": judgement.label_thresholds},
        scores={"test": judgement.fixed, "validation": judgement.validation},
        split=_split_values(prepared),
        seed=prepared.options.seed,
        epoch=position.best_epoch,
        probe=_probe_rows(prepared),
        versions=_versions(),
        text=None if prepared.texts is None else prepared.texts.saved,
        texts=_probe_texts(prepared),
        probe_labels=_probe_labels(prepared),
    )


def _probe_rows(prepared: Prepared) -> Tensor:
    """Some test rows as the user has them, for proving that an export gives the same answers."""
    data, texts = prepared.data, prepared.texts
    if texts is not None and texts.saved["kind"] == "tokens":
        return torch.zeros(0, prepared.problem.shape.n_features)
    matrix = feature_matrix(data) if texts is None else texts.rows
    assert not isinstance(matrix, TokenRows)  # noqa: S101 - those are tokens
    rows = matrix[_probe(prepared)]
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    return torch.from_numpy(np.ascontiguousarray(dense, dtype=np.float32))


def _probe_texts(prepared: Prepared) -> list[str]:
    inputs = prepared.data.inputs
    return [inputs[row] for row in _probe(prepared)] if isinstance(inputs, list) else []


def _probe_labels(prepared: Prepared) -> list[list[int]]:
    targets = prepared.data.targets[_probe(prepared)]
    return [labels.tolist() for labels in np.split(targets.indices, targets.indptr[1:-1])]


def _probe(prepared: Prepared) -> np.ndarray:
    """The numbers of the first test rows."""
    most = PROBE_ROWS if prepared.texts is None else PROBE_TEXTS
    count = max(1, min(most, PROBE_VALUES // prepared.problem.shape.n_features))
    return prepared.split.test[:count]


def _metrics(prepared: Prepared, position: Position, judgement: Judgement) -> dict[str, Any]:
    columns = asdict(judgement)
    thresholds = {"tuned": columns.pop("threshold"), "per_label": columns.pop("label_thresholds")}
    return {
        "method": prepared.method_name,
        "kind": prepared.config.variant,
        "dataset": prepared.data.name,
        "preset": prepared.options.preset,
        "seed": prepared.options.seed,
        "data": _data_values(prepared.options),
        "split": _split_values(prepared),
        "epochs": position.epoch,
        "best_epoch": position.best_epoch,
        "seconds": round(position.seconds, 3),
        "scores": columns,
        "thresholds": thresholds,
        "config": config_values(prepared.config),
        "command": prepared.command,
        "commit": prepared.commit,
        "versions": _versions(),
    }


def _data_values(options: RunOptions) -> dict[str, Any]:
    """What loads the same rows again; which of them were in which part is in split.npz."""
    folder = None if options.data_dir is None else str(options.data_dir)
    return {"dataset": options.dataset, "data_dir": folder, **options.reader_options()}


def _split_values(prepared: Prepared) -> dict[str, Any]:
    train, validation, test = prepared.split.sizes()
    return {
        "rule": prepared.split.rule,
        "seed": prepared.options.split_seed,
        "fraction": prepared.options.fraction,
        "train": train,
        "validation": validation,
        "test": test,
    }


def _versions() -> dict[str, str]:
    return {
        "labelwright": version("labelwright"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }
