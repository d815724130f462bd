from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from train.batches import LEAST_WIDTH, SparseBatch, to_rows
from train.nets.mlp import FeatureNet, InputLayer, TaskNet, dropout


def test_dropout_keeps_the_mean_and_the_wanted_share():
    torch.manual_seed(0)
    x = torch.ones(400, 500)
    dropped = dropout(x, 0.3)
    assert float((dropped == 0).float().mean()) == pytest.approx(0.3, abs=0.005)
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.01)
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.7])


def test_sparse_rows_give_the_logits_of_dense_ones():
    torch.manual_seed(0)
    dense = np.zeros((6, LEAST_WIDTH), np.float32)
    dense[np.arange(6), np.arange(6) * 7] = [1, 2, -1, 0.5, 1, 3]
    rows = to_rows(sparse.csr_array(dense), torch.device("cpu"))
    net = TaskNet(FeatureNet(LEAST_WIDTH, (8, 7), dropout=0.5), 4).eval()
    batch = rows.batch(torch.arange(6))
    assert isinstance(batch, SparseBatch)
    torch.testing.assert_close(net(batch), net(torch.from_numpy(dense)))


def test_a_pass_finished_twice_from_one_beginning_differs_by_its_dropout_alone():
    torch.manual_seed(0)
    net, x = TaskNet(FeatureNet(5, (8, 7), dropout=0.5), 4), torch.randn(3, 5)
    begun = net.begin(x)
    assert not torch.equal(net.finish(begun), net.finish(begun))
    torch.manual_seed(7)
    whole = net(x)
    torch.manual_seed(7)
    assert torch.equal(net.finish(begun), whole)


def test_logits_are_inner_products_of_embeddings():
    net, x = TaskNet(FeatureNet(5, (8, 7), dropout=0.5), 4).eval(), torch.randn(3, 5)
    torch.testing.assert_close(net(x), net.embed(x) @ net.label_embeddings().t())


def test_weights_drawn_unit_by_unit_are_those_drawn_at_once():
    torch.manual_seed(0)
    layer = InputLayer(37, 50)
    torch.manual_seed(0)
    weight = torch.nn.init.kaiming_uniform_(torch.empty(50, 37), nonlinearity="relu")
    assert torch.equal(layer.weight, weight.t())


def test_a_layer_scaled_to_rows_answers_them_with_deviation_one():
    layer, rows = InputLayer(37, 50), 100 * torch.randn(20, 37)
    layer.scale_to(rows)
    assert float(layer(rows).detach().std()) == pytest.approx(1, rel=1e-5)
