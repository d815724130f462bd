"""A run folder: what a training run leaves behind, and how it is opened, resumed and replaced."""

from __future__ import annotations

import io
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train.config import to_toml
from train.data import Split
from train.errors import ConfigError


@dataclass(frozen=True)
class RunFolder:
    """Paths of the files of one run."""

    path: Path

    @property
    def model(self) -> Path:
        """The trained model, for `python -m export`."""
        return self.path / "model.pt"

    @property
    def resume(self) -> Path:
        """All that `--resume` needs to go on."""
        return self.path / "resume.pt"

    @property
    def metrics(self) -> Path:
        """Every score, with the command and the environment."""
        return self.path / "metrics.json"

    @property
    def history(self) -> Path:
        """Losses and validation score, one line an epoch."""
        return self.path / "history.jsonl"

    @property
    def config(self) -> Path:
        """The hyper-parameters used; can be given to `--preset`."""
        return self.path / "config.toml"

    @property
    def split(self) -> Path:
        """Row numbers of the parts: arrays `train`, `validation` and `test`."""
        return self.path / "split.npz"

    @property
    def report(self) -> Path:
        """Tables and plots, unless `--no-report` was given."""
        return self.path / "report.html"

    @property
    def tensorboard(self) -> Path:
        """Folder of events, where `--tensorboard` was given."""
        return self.path / "tensorboard"

    def files(self) -> list[Path]:
        """All of them, there or not."""
        return [self.model, self.metrics, self.history, self.split, self.config, self.resume,
                self.report]  # fmt: skip


def open_run(path: Path, *, resume: bool, overwrite: bool) -> RunFolder:
    """Make the folder ready; never touch an earlier run without being told to.

    A run that was killed before it could save its state is resumed from its beginning.
    """
    run = RunFolder(path)
    held = [file for file in run.files() if file.exists()]
    if resume and not held:
        raise ConfigError(
            f"there is nothing to resume in {path}: leave out --resume to start a run"
        )
    if held and not (resume or overwrite):
        raise ConfigError(
            f"{path} already holds a run: --resume goes on with it, --overwrite replaces it, "
            "--out DIR puts this one elsewhere"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        if overwrite and not resume:
            for file in held:
                file.unlink()
    except OSError as error:
        raise ConfigError(
            f"cannot write to {path}: {error.strerror}; choose another --out"
        ) from error
    return run


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside the file, then rename: readers see the old content or the new one."""
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(scratch).chmod(0o644)
        os.replace(scratch, path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text whole or not at all."""
    write_bytes(path, text.encode())


def write_split(run: RunFolder, split: Split) -> None:
    """Keep which rows were in which part, so that others can use the same."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, train=split.train, validation=split.validation, test=split.test)
    write_bytes(run.split, buffer.getvalue())


def write_config(run: RunFolder, method: str, values: dict[str, Any]) -> None:
    """Keep the resolved hyper-parameters as a preset."""
    write_text(run.config, f"# hyper-parameters of method {method!r}\n" + to_toml(values))


def write_history(run: RunFolder, history: list[dict[str, float]]) -> None:
    """Keep what every epoch gave."""
    write_text(run.history, "".join(json.dumps(epoch) + "\n" for epoch in history))


def write_metrics(run: RunFolder, values: dict[str, Any]) -> None:
    """Keep the scores."""
    write_text(run.metrics, json.dumps(values, indent=2) + "\n")
