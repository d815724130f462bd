"""Where the real data sets are, for all tests: beside the checkout unless the variable says."""

from __future__ import annotations

import os
from pathlib import Path

BESIDE_THE_CHECKOUT = Path(__file__).parents[2] / "shared" / "data"

if "LABELWRIGHT_DATA" not in os.environ and BESIDE_THE_CHECKOUT.is_dir():
    os.environ["LABELWRIGHT_DATA"] = str(BESIDE_THE_CHECKOUT)
