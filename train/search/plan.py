"""What a search is of: a method, its settings, what varies, and the run of each trial."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.config import MethodConfig, config_values
from train.errors import ConfigError
from train.evidence import full_name
from train.options import RunOptions
from train.parsing import as_words, parse_run
from train.planned import PlannedRun
from train.search.space import Space, space_of, stored


@dataclass(frozen=True, kw_only=True)
class Search:
    """All that trials have in common."""

    method: str
    config: MethodConfig
    options: RunOptions
    words: Sequence[str]
    """Flags of the method and of its runs, as given."""
    space: Space
    folder: Path

    @property
    def first(self) -> dict[str, Any]:
        """Values of the first trial: those of preset and defaults, which others must beat."""
        return stored(self.config, self.space)

    @property
    def identity(self) -> dict[str, Any]:
        """What must be the same for a search to be the same search."""
        values = config_values(self.config)
        options = self.options
        return {
            **{name: value for name, value in values.items() if name not in self.space},
            "method": self.method,
            "dataset": options.dataset,
            "split": options.split,
            "split_seed": options.split_seed,
            "fraction": options.fraction,
            "seed": options.seed,
            "space": {name: str(values) for name, values in self.space.items()},
        }

    def run(self, values: dict[str, Any], folder: Path) -> PlannedRun:
        """The run of a trial with these values."""
        config = dataclasses.replace(self.config, **values)
        words = [*self.words, *as_words(values, dict.fromkeys(values)), "--out", str(folder)]
        return PlannedRun(
            name=full_name(self.method, config.variant),
            method=self.method,
            config=config,
            options=dataclasses.replace(self.options, out=folder, progress=False),
            command=shlex.join(["python", "-m", "train", self.method, *words]),
        )


def plan_search(method: str, words: Sequence[str], vary: str, out: Path | None) -> Search:
    """Check the settings, which are those of a single run, and see what is left to vary."""
    given = {word[2:].partition("=")[0].replace("-", "_") for word in words if word[:2] == "--"}
    wrong = sorted({"resume", "overwrite", "report", "no_report"} & given)
    if wrong:
        raise ConfigError(f"--{wrong[0]} is for single runs: a search goes on by itself")
    options, config = parse_run(method, words)
    # Absolute: processes elsewhere have other working folders.
    folder = (out or Path("runs") / Path(options.dataset).stem / f"search-{method}").absolute()
    return Search(
        method=method, config=config, options=options, words=words,
        space=space_of(config, given, vary), folder=folder,
    )  # fmt: skip
