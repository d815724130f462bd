from __future__ import annotations

import math

import pytest
import torch

from train.batches import LabelLists
from train.data import load_dataset, make_split
from train.errors import ConfigError
from train.loop import seed_everything
from train.losses import binary_cross_entropy
from train.methods import seal
from train.problem import make_problem
from train.seal_sampled import draw_vocabulary, sampled_cross_entropy

CPU = torch.device("cpu")
N_LABELS = 40


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(5, N_LABELS, generator=generator) < 0.08).float()
    y[2] = 0
    logits = torch.randn(5, N_LABELS, generator=generator, dtype=torch.float64)
    return torch.randn(5, 3, generator=generator), y, logits


def test_the_vocabulary_holds_the_labels_of_the_batch_and_what_was_drawn(rows):
    x, y, _ = rows
    batch = draw_vocabulary(x, LabelLists.of_dense(y), 6, torch.Generator().manual_seed(1))
    drawn = torch.randint(N_LABELS, (6,), generator=torch.Generator().manual_seed(1))
    own = y.any(0).nonzero().flatten().tolist()
    assert batch.labels.tolist() == sorted({*own, *drawn.tolist()})
    assert torch.equal(batch.truth, y[:, batch.labels])
    for label, weight in zip(batch.labels.tolist(), batch.weights.tolist(), strict=True):
        times = drawn.tolist().count(label)
        assert weight == pytest.approx(1 if label in own else times * N_LABELS / 6)
    assert batch.is_label.all()


def test_cross_entropy_is_that_of_all_labels_in_expectation(rows):
    x, y, logits = rows
    generator = torch.Generator().manual_seed(2)
    values = []
    for _ in range(4000):
        batch = draw_vocabulary(x, LabelLists.of_dense(y), 8, generator)
        values.append(sampled_cross_entropy(logits[:, batch.labels].float(), batch))
    values = torch.stack(values)
    full = float(binary_cross_entropy(logits, y.double()))
    error = float(values.std()) / len(values) ** 0.5
    assert abs(float(values.mean()) - full) < 4 * error
    assert error < 0.01 * full


def test_an_accelerators_repeated_column_stands_for_nothing(rows, monkeypatch):
    x, y, logits = rows
    lists = LabelLists.of_dense(y)
    one = draw_vocabulary(x, lists, 6, torch.Generator().manual_seed(1))
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    other = draw_vocabulary(x, lists, 6, torch.Generator().manual_seed(1))
    count = len(one.labels)
    assert len(other.labels) == len(lists.labels) + 6 > count
    assert other.is_label.sum() == count
    assert not other.weights[count:].any()
    values = [sampled_cross_entropy(logits[:, b.labels].float(), b) for b in (one, other)]
    torch.testing.assert_close(*values)


def test_only_rows_of_the_vocabulary_change_and_labels_begin_as_rare_as_they_are():
    data = load_dataset("synthetic:labels=2000,rows=400,features=1500")
    problem = make_problem(data, make_split(data), CPU)
    config = seal.Config(hidden=(8,), global_units=4, samples=3, negatives=10, loss_steps=1)
    seed_everything(0)
    method = seal.build(config, problem)
    rows = torch.arange(6)
    x, y = problem.train.x.batch(rows), problem.train.y.lists(rows)
    with torch.no_grad():
        logits = method.predictor.eval()(problem.train.x.batch(torch.arange(128)))
    share = problem.train.targets.nnz / len(problem.train) / 2000
    assert float(logits.mean()) == pytest.approx(math.log(share / (1 - share)), abs=0.1)
    tables = {
        "labels": method.predictor.labels,
        "loss labels": method.loss_net.labels,
        "joint": method.loss_net.joint,
        "features": method.predictor.features.input.weight,
    }
    before = {name: table.detach().clone() for name, table in tables.items()}
    method.step(x, y)
    changed = {
        name: (table != before[name]).any(1).nonzero().flatten() for name, table in tables.items()
    }
    true = set(y.labels.tolist())
    assert true <= set(changed["labels"].tolist())
    for name in ("labels", "loss labels", "joint"):
        assert 0 < len(changed[name]) <= len(true) + 10
    assert set(changed["features"].tolist()) == set(x.columns.tolist())


@pytest.mark.parametrize("options", [{"loss": "margin"}, {"loss": "regression"}, {"static": True}])
def test_other_losses_need_all_labels(options):
    with pytest.raises(ConfigError, match="--negatives goes with --loss nce or ranking"):
        seal.Config(negatives=5, **options)
    with pytest.raises(ConfigError, match="--negatives must be 0 or more"):
        seal.Config(negatives=-1)
