"""No method may mix CPU and accelerator tensors, or read values back in the middle of a step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from train import methods
from train.config import TokenConfig

SCRIPT = Path(__file__).with_name("fake_accelerator.py")


def takes_tokens(name: str) -> bool:
    return issubclass(methods.load(name).Config, TokenConfig)


def run_script(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("name", methods.available())
def test_a_step_stays_on_the_accelerator(name):
    done = run_script(name)
    assert done.returncode == 0, done.stderr


TEXT_STEPS = [(name, "full") for name in methods.available() if takes_tokens(name)]


@pytest.mark.parametrize(("name", "tuning"), [*TEXT_STEPS, ("ce", "adapter")])
def test_a_step_on_texts_stays_on_the_accelerator(name, tuning):
    done = run_script("--text", name, tuning)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words", [["ce"], ["dvn"], ["seal", "loss=regression"], ["seal", "loss=nce"]], ids="-".join
)
def test_a_step_on_images_stays_on_the_accelerator(words):
    done = run_script("--image", *words)
    assert done.returncode == 0, done.stderr


WORD_STEPS = [
    ["ce"],
    ["dvn"],
    *(["seal", f"loss={loss}"] for loss in ("nce", "regression-s", "margin")),
]


@pytest.mark.parametrize("words", WORD_STEPS, ids="-".join)
def test_a_step_on_words_stays_on_the_accelerator(words):
    done = run_script("--words", *words)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mistake", ["--cpu-operand", "--reads-a-value"])
def test_the_fake_accelerator_catches_mistakes(mistake):
    assert run_script("ce", mistake).returncode != 0
