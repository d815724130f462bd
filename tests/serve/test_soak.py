"""The short form of `python -m benchmarks.serving.soak`; LABELWRIGHT_SOAK=10 is ten minutes."""

from __future__ import annotations

import os

import numpy as np
import pytest

from benchmarks.serving.soak import Asked, Options, measure

MINUTES = float(os.environ.get("LABELWRIGHT_SOAK", "0.2"))


@pytest.mark.slow
@pytest.mark.timeout(120 + 120 * MINUTES)
def test_under_full_load_answers_stay_right_and_memory_flat(tmp_path):
    soak = measure(Options(minutes=MINUTES, workers=1), tmp_path)
    assert soak.errors == 0
    assert len(soak.parts) >= 3
    assert soak.aside >= 9
    assert all(part.statuses[200] > 100 for part in soak.parts)
    megabytes = soak.settled[:, 1]
    # Growth of a leak: 64 bytes a request would be more within seconds.
    assert megabytes[-1] - megabytes[0] < 20


def test_a_wrong_answer_is_noticed():
    asked = Asked(b"", (np.array([[3, 1]]), np.array([[0.9, 0.5]])))
    right = b'{"predictions":[{"labels":["label-3","label-1"],"scores":[0.9,0.5]}]}'
    assert asked.is_right(right)
    assert not asked.is_right(right.replace(b"label-1", b"label-2"))
    assert not asked.is_right(right.replace(b"0.5", b"0.6"))
