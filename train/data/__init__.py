"""Data sets: known ones by name, a user's own by path, and how they are cut into parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from train.data.dataset import MultiLabelData, Split
from train.data.demo import read_demo
from train.data.formats import read_path
from train.data.registry import cache_dir, find_info, is_known, propensity_constants, provide_files
from train.data.sources import read_known
from train.data.splits import make_split
from train.errors import ConfigError

__all__ = [
    "MultiLabelData",
    "Split",
    "cache_dir",
    "load_dataset",
    "make_split",
    "propensity_constants",
]


def load_dataset(
    name_or_path: str,
    *,
    data_dir: Path | None = None,
    **options: Any,  # noqa: ANN401 - the reader types them
) -> MultiLabelData:
    """Load a data set by name, from this machine or its public address, or a user's own by path.

    A string with a path separator or an ending is a path, and so is one that is no known name but
    exists. `demo` needs neither file nor network. `options` go to the reader of a user's own file.

    Raises:
        ConfigError: An option that the reader does not know.
        DataError: Unknown name, missing or damaged file, or a format that cannot be read.
    """
    if _is_path(name_or_path):
        return read_path(Path(name_or_path).expanduser(), **options)
    info = find_info(name_or_path)
    if options:
        raise ConfigError(f"{info.name} is a known data set: column options are for your own files")
    if info.name == "demo":
        return read_demo()
    return read_known(info, provide_files(info, data_dir, os.environ))


def _is_path(name: str) -> bool:
    separators = [separator for separator in (os.sep, os.altsep) if separator]
    if any(separator in name for separator in separators) or Path(name).suffix:
        return True
    return not is_known(name) and Path(name).exists()
