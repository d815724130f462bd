"""What `python -m train --help` says. It is read, not imported: help should not wait for torch."""

from __future__ import annotations

import ast
from pathlib import Path

METHODS = Path(__file__).parent / "methods"
USAGE = """\
usage: python -m train METHOD --dataset NAME|FILE [options]
       python -m train COMMAND [options]

methods
{methods}

commands
  list [methods|datasets]  what there is, and which data sets are on this machine
  data check NAME|FILE     examine a data set: sizes, label frequencies, everything suspicious
  data show NAME|FILE      a few rows with their labels
  compare                  methods side by side over seeds, beside the papers' numbers
  results FOLDER...        add finished runs to the committed results
  fill                     train what the plan of results names and no row shows yet
  search METHOD            hyper-parameters that score best on validation rows
  report RUN...            tables and plots of finished runs, as one HTML page
  masks RUN...             test images with their true masks and those of runs, as one picture
  probe MODEL              how good the features of a model are, by logistic regressions on them

`python -m train METHOD --help` shows the options of a method.
example: python -m train seal --dataset demo
"""


def usage() -> str:
    """All methods and commands."""
    rows = [f"  {name:<15} {summary}" for name, summary in method_summaries().items()]
    return USAGE.format(methods="\n".join(rows))


def method_summaries() -> dict[str, str]:
    """The first line of each method's description, by its name."""
    names = sorted(path.stem.replace("_", "-") for path in METHODS.glob("[!_]*.py"))
    return {name: method_summary(name) for name in names}


def method_summary(name: str) -> str:
    """The first line of a method's description."""
    path = METHODS / f"{name.replace('-', '_')}.py"
    described = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return (described or "").partition("\n")[0]
