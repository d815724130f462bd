"""For all tests: where the real data sets are, and no judgement of how fast an example runs."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import settings

BESIDE_THE_CHECKOUT = Path(__file__).parents[2] / "shared" / "data"

if "LABELWRIGHT_DATA" not in os.environ and BESIDE_THE_CHECKOUT.is_dir():
    os.environ["LABELWRIGHT_DATA"] = str(BESIDE_THE_CHECKOUT)

settings.register_profile("labelwright", deadline=None)
settings.load_profile("labelwright")
