from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from export.bundle import BundleError
from export.to_onnx import export_predictor, without_path
from export.verify import check_parity, check_path
from train.checkpoint import InputScaling
from train.nets.energy import EnergyNet
from train.nets.inference import GradientInference
from train.nets.mlp import FeatureNet

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


def descending(seed: int, *, steps: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    inference = GradientInference(
        EnergyNet(FeatureNet(4, (6,), 0.0), 5, 3), torch.rand(2, 5), steps=steps, step_size=0.1
    )
    return nn.Sequential(InputScaling(torch.ones(4), torch.full((4,), 2.0)), inference).eval()


@pytest.fixture
def graph():
    return export_predictor(descending(0), 4, 5)


def test_every_point_of_a_descent_is_compared(graph):
    assert check_path(descending(0), graph, ROWS) <= 1e-6
    with pytest.raises(BundleError, match="the exported descent differs from the checkpoint by"):
        check_path(descending(1), graph, ROWS)


def test_one_wrong_step_on_the_way_fails_the_export(graph):
    """Even where the answer, the best of all points, may be another one."""
    hasty = descending(0)
    hasty[1].step_size = 0.1001
    with pytest.raises(BundleError, match="the exported descent differs"):
        check_path(hasty, graph, ROWS)


def test_the_served_graph_gives_the_same_answers_without_the_path(graph):
    nodes = len(list(graph.graph))
    served = without_path(graph)
    outputs = [output.name for output in served.graph.outputs]
    assert outputs == ["scores", "top_scores", "top_labels"]
    assert len(list(served.graph)) < nodes
    assert check_parity(descending(0), served, ROWS).largest_difference <= 1e-6
