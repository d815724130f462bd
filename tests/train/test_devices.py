"""No method may mix CPU and accelerator tensors, or read values back in the middle of a step."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from train import methods
from train.config import TokenConfig

SCRIPT = Path(__file__).with_name("fake_accelerator.py")


def takes_tokens(name: str) -> bool:
    return issubclass(methods.load(name).Config, TokenConfig)


@pytest.fixture(scope="module")
def complaints():
    """What is wrong with a step on the fake accelerator; loading torch for each would be slow."""
    with subprocess.Popen(
        [sys.executable, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as script:

        def ask(*words: str) -> str:
            script.stdin.write(json.dumps(words) + "\n")
            script.stdin.flush()
            return json.loads(script.stdout.readline())

        yield ask
        script.stdin.close()


@pytest.mark.parametrize("name", methods.available())
def test_a_step_stays_on_the_accelerator(complaints, name):
    assert complaints(name) == ""


TEXT_STEPS = [(name, "full") for name in methods.available() if takes_tokens(name)]


@pytest.mark.parametrize(("name", "tuning"), [*TEXT_STEPS, ("ce", "adapter")])
def test_a_step_on_texts_stays_on_the_accelerator(complaints, name, tuning):
    assert complaints("--text", name, tuning) == ""


@pytest.mark.parametrize(
    "words", [["ce"], ["dvn"], ["seal", "loss=regression"], ["seal", "loss=nce"]], ids="-".join
)
def test_a_step_on_images_stays_on_the_accelerator(complaints, words):
    assert complaints("--image", *words) == ""


WORD_STEPS = [
    ["ce"],
    ["dvn"],
    *(["seal", f"loss={loss}"] for loss in ("nce", "regression-s", "margin")),
]


@pytest.mark.parametrize("words", WORD_STEPS, ids="-".join)
def test_a_step_on_words_stays_on_the_accelerator(complaints, words):
    assert complaints("--words", *words) == ""


@pytest.mark.parametrize(
    ("mistake", "words"), [("--cpu-operand", "cpu"), ("--reads-a-value", "item()")]
)
def test_the_fake_accelerator_catches_mistakes(complaints, mistake, words):
    assert words in complaints("ce", mistake)
