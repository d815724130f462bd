"""Which state of the program made a result."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHANGED = "+changes"
TIMEOUT_SECONDS = 10


def revision(root: Path = ROOT) -> str | None:
    """The commit of the checkout that runs, with `+changes` where its code was changed since.

    None for an installed program, and where git is missing. Only what trains counts: the
    committed results change with every run that is added to them.
    """
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "status", "--porcelain=v2", "--branch"]
    command += ["--untracked-files=no", "--", "train", ":(exclude)train/results"]
    try:
        done = subprocess.run(  # noqa: S603 - fixed words
            command, capture_output=True, text=True, check=True, timeout=TIMEOUT_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.splitlines()
    commit = next(line.split()[-1] for line in lines if line.startswith("# branch.oid "))
    return commit if all(line.startswith("#") for line in lines) else commit + CHANGED
