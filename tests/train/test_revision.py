"""Which state of the program made a result."""

from __future__ import annotations

import subprocess
from pathlib import Path

from train.revision import revision


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *names, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_change_of_what_trains_is_told_and_one_of_the_results_is_not(tmp_path):
    git(tmp_path, "init")
    for name in ("train/loop.py", "train/results/demo.csv", "docs/page.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "All")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert revision(tmp_path) == commit
    for name in ("train/results/demo.csv", "docs/page.md", "train/new.txt"):
        (tmp_path / name).write_text("after")
    assert revision(tmp_path) == commit
    (tmp_path / "train/loop.py").write_text("after")
    assert revision(tmp_path) == f"{commit}+changes"


def test_an_installed_program_has_none(tmp_path):
    git(tmp_path, "init")
    (tmp_path / "site-packages").mkdir()
    assert revision(tmp_path / "site-packages") is None


def test_a_checkout_without_git_has_none(tmp_path, monkeypatch):
    git(tmp_path, "init")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert revision(tmp_path) is None
