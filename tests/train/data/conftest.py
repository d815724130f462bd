"""Fixtures for tests over the real data sets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data_dir() -> Path:
    """Folder with the real data sets; without one those tests have nothing to look at."""
    value = os.environ.get("LABELWRIGHT_DATA")
    if not value:
        pytest.skip("LABELWRIGHT_DATA is not set: name the folder that holds the real data sets")
    if not Path(value).is_dir():
        pytest.skip(f"LABELWRIGHT_DATA is {value}, which is not a folder")
    return Path(value)
