"""What a training run works on: checked settings, and data that was loaded, cut and encoded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from train import methods, ranks
from train.config import MethodConfig, TokenConfig, TrainingConfig
from train.data import MultiLabelData, Split, load_dataset, make_split
from train.errors import ConfigError
from train.marking import MONITOR
from train.options import DataOptions, RunOptions
from train.problem import EncodedTexts, Problem, Shape, make_problem, resolve_device
from train.products import fast_products
from train.revision import revision
from train.run import RunFolder, open_run
from train.tensorboard import summary_writer
from train.texts import encode_texts


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
    resolved: MethodConfig
    """The config, with models in the place of those that it names and that had to be trained."""
    members_seconds: float = 0.0
    """Of training those."""


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
    if ranks.size() > 1 and not isinstance(config, TrainingConfig):
        raise ConfigError(
            f"{method_name} is fitted in one go, in one process: start it with `python -m train`, "
            "not with torchrun"
        )
    if options.tensorboard:
        if not isinstance(config, TrainingConfig):
            raise ConfigError(
                f"{method_name} is fitted in one go, so it has no epochs to show: leave out "
                "--tensorboard"
            )
        summary_writer()
    torch.set_num_threads(options.threads)
    device = resolve_device(options.device)
    data, split = ranks.one_by_one(lambda: load_split(options))
    methods.check_task(method_name, data.task)
    _check_monitor(config, data)
    out = options.out or Path("runs") / data.name / f"{method_name}-{options.seed}"
    progress = options.progress and ranks.is_first()
    with fast_products():
        texts = ranks.one_by_one(
            lambda: encode_texts(data, split, config, device, progress=progress)
        )
    problem = make_problem(data, split, device, config.scaling, texts)
    _check_precision(config, problem.shape)
    options = replace(options, resume=options.resume or ranks.on_first(lambda: _goes_on(out)))
    run = ranks.on_first(lambda: open_run(out, resume=options.resume, overwrite=options.overwrite))
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
        resolved=config,
    )


def _goes_on(out: Path) -> bool:
    """Whether processes that torchrun started anew left something in the run folder."""
    return ranks.restarted() and any(file.exists() for file in RunFolder(out).files())


def _check_precision(config: MethodConfig, shape: Shape) -> None:
    """Networks over feature vectors are no faster in half precision."""
    is_heavy = shape.encoder is not None or shape.image is not None
    if isinstance(config, TokenConfig) and config.precision != "float32" and not is_heavy:
        raise ConfigError(
            f"--precision {config.precision} is for text encoders that are trained and for images: "
            "leave it out, or add --tuning full"
        )


def _check_monitor(config: MethodConfig, data: MultiLabelData) -> None:
    """Labels on words are judged by their spans, and only they are."""
    if not isinstance(config, TrainingConfig):
        return
    if (data.task == "tagging") != (config.monitor == MONITOR):
        if data.task == "tagging":
            raise ConfigError(f"{data.name} has labels on words: add --monitor {MONITOR}")
        raise ConfigError(f"--monitor {MONITOR} is for labels on words, which {data.name} has not")
