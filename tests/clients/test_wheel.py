"""The wheel alone in an empty environment, against a server in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NO_NETWORK = (
    "No matching distribution found",
    "Could not find a version",
    "connection",
    "timed out",
)

# Runs in the empty environment: neither numpy nor pandas are there.
SCRIPT = """
import asyncio, importlib.util, json, sys
from labelwright_client import AsyncClient, Client

assert not any(map(importlib.util.find_spec, ("numpy", "pandas", "torch", "serve")))
rows = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
with Client(sys.argv[1]) as client:
    client.wait_until_ready()
    names = [model.name for model in client.models()]
    best = [p.labels[0] for p in client.predict(rows, top_k=1)]
    many = [p.labels[0] for p in client.predict_many(iter(rows), chunk_rows=1, top_k=1)]
    compared = client.compare(rows[:1], request_id="mine")
    try:
        client.predict(rows).to_frame()
    except ImportError as error:
        sentence = str(error)


async def ask():
    async with AsyncClient(sys.argv[1]) as client:
        return [p.labels[0] async for p in client.predict_many(rows, top_k=1)]


print(json.dumps([names, best, many, asyncio.run(ask()), len(compared[0].predictions), sentence]))
"""


def run(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    hidden = ("PYTHON", "LABELWRIGHT_", "VIRTUAL_ENV")
    return subprocess.run(
        list(map(str, words)), cwd=folder, capture_output=True, text=True, check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith(hidden)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder of an environment that holds the wheel and what it brings."""
    home = tmp_path_factory.mktemp("empty")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = run(*pip, "wheel", "--no-deps", "-w", home, ROOT / "clients" / "python", folder=home)
    if built.returncode and any(words in built.stderr for words in NO_NETWORK):
        pytest.skip("needs a package index, to build and install the wheel")
    assert built.returncode == 0, built.stderr
    (wheel,) = home.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", home / "venv", folder=home)
    python = home / "venv" / "bin" / "python"
    done = run(*pip, "--python", python, "install", wheel, folder=home)
    assert done.returncode == 0, done.stderr
    return home


def test_the_wheel_works_with_httpx_alone(installed, address):
    done = run(installed / "venv/bin/python", "-c", SCRIPT, address, folder=installed)
    assert done.returncode == 0, done.stderr
    best = ["L", "R", "L"]
    sentence = "to_frame() needs pandas: pip install pandas"
    assert json.loads(done.stdout) == [["two"], best, best, best, 1, sentence]


def test_the_command_is_installed(installed, address):
    (installed / "my.csv").write_text("right,note,left\n0,x,1\n1,y,0\n")
    words = ["predict", "my.csv", "--url", address, "--top-k", "1", "--format", "jsonl"]
    done = run(installed / "venv/bin/labelwright", *words, folder=installed)
    assert [json.loads(line)["labels"] for line in done.stdout.splitlines()] == [["L"], ["R"]]
    assert "2/2 rows" in done.stderr
    wrong = run(installed / "venv/bin/labelwright", "predict", "no.csv", "--url", address,
                folder=installed)  # fmt: skip
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "error: cannot read no.csv: No such file or directory\n"


def test_the_wheel_is_typed_and_holds_nothing_else(installed):
    site = next((installed / "venv/lib").glob("python*/site-packages"))
    assert (site / "labelwright_client/py.typed").is_file()
    assert not (site / "tests").exists()
