from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from export.bundle import BundleError
from export.to_onnx import export_predictor
from export.verify import check_parity

ROWS = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)


def predictor(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 5)).eval()


def test_a_graph_of_the_same_weights_passes():
    parity = check_parity(predictor(0), export_predictor(predictor(0), 4, 5), ROWS)
    assert parity.largest_difference <= 1e-6
    np.testing.assert_allclose(
        parity.scores, predictor(0)(torch.from_numpy(ROWS)).sigmoid().detach(), atol=1e-6
    )


def test_a_graph_of_other_weights_fails_the_export():
    with pytest.raises(BundleError, match="differs from the checkpoint by"):
        check_parity(predictor(0), export_predictor(predictor(1), 4, 5), ROWS)


class NotANumber(nn.Module):
    def forward(self, x):
        return x * float("nan")


def test_a_graph_that_gives_no_numbers_fails_the_export():
    with pytest.raises(BundleError, match="differs from the checkpoint by nan"):
        check_parity(NotANumber(), export_predictor(NotANumber(), 4, 4), ROWS)


def test_one_label_is_enough():
    torch.manual_seed(0)
    linear = nn.Linear(4, 1).eval()
    assert check_parity(linear, export_predictor(linear, 4, 1), ROWS).largest_difference <= 1e-6
