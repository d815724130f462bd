from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy import sparse

from train import methods, ranks
from train.batches import SparseBatch, to_rows
from train.data import MultiLabelData, Split, load_dataset, make_split
from train.errors import ConfigError
from train.loop import Position, fit, seed_everything, validation_score
from train.methods import sampled
from train.nets import retrieval
from train.problem import Shape, make_problem

CPU = torch.device("cpu")


def many_labels(n_labels: int = 3000):
    data = load_dataset(f"synthetic:labels={n_labels},rows=300,features=2000")
    return make_problem(data, make_split(data), CPU)


def built(problem, **options):
    seed_everything(0)
    return sampled.build(sampled.Config(hidden=(8,), negatives=16, **options), problem)


def batch(problem, rows):
    return problem.train.x.batch(rows), problem.train.y.lists(rows)


@pytest.mark.parametrize("sampler", ["uniform", "within-batch"])
def test_a_step_changes_the_rows_of_its_labels_and_features_and_no_others(sampler):
    problem = many_labels()
    method = built(problem, sampler=sampler)
    before = {name: value.clone() for name, value in method.predictor.state_dict().items()}
    x, y = batch(problem, torch.arange(4))
    assert isinstance(x, SparseBatch)
    method.step(x, y)
    changed = {
        name: set((value != before[name]).any(1).nonzero().flatten().tolist())
        for name, value in method.predictor.state_dict().items()
        if value.dim() == 2
    }
    assert changed["features.input.weight"] == set(x.columns.tolist())
    true = set(y.labels.tolist())
    assert true <= changed["labels"]
    assert len(changed["labels"]) <= len(true) + 16
    if sampler == "within-batch":
        assert changed["labels"] == true
    assert all(parameter.grad is None for parameter in method.optimizer.tables.values())


def test_training_never_makes_a_matrix_of_rows_by_labels(monkeypatch):
    problem = many_labels()
    config = sampled.Config(hidden=(8,), negatives=16, epochs=1)
    monkeypatch.setattr(type(problem.train.y), "take", lambda *_: pytest.fail("dense targets"))
    seed_everything(0)
    method = sampled.build(config, problem)

    class Silent:
        on_step = on_epoch = staticmethod(lambda *_: None)

    position = Position()
    fit(
        method, problem, config,
        seed=0, position=position, observer=Silent(), should_stop=lambda: False,
    )  # fmt: skip
    assert list(position.history[0])[-2:] == ["validation_ndcg@5", "seconds"]


def test_learns_more_than_how_often_labels_occur():
    data = load_dataset("synthetic:labels=200,rows=2000,features=2000")
    problem = make_problem(data, make_split(data), CPU)
    seed_everything(0)
    method = sampled.build(sampled.Config(hidden=(32,), negatives=32, lr=0.02), problem)
    for rows in torch.arange(1600).split(64) * 3:
        method.step(*batch(problem, rows))
    popular = torch.nn.Linear(2000, 200)
    torch.nn.init.zeros_(popular.weight)
    popular.bias.data = torch.from_numpy(problem.train.targets.sum(axis=0)).float()
    ours, theirs = (
        validation_score(network, problem.validation, CPU, "ndcg@5")
        for network in (method.predictor, Dense(popular))
    )
    assert ours > theirs + 0.2


class Dense(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.to_dense())


@pytest.mark.parametrize("loss", ["softmax", "contrastive"])
def test_logits_are_the_inner_products_of_the_embeddings(loss):
    problem = many_labels(40)
    method = built(problem, loss=loss)
    for rows in torch.arange(40).split(8):
        method.step(*batch(problem, rows))
    network = method.predictor.eval()
    assert (float(network.offset) == 0) == (loss == "contrastive")
    sparse_rows = problem.test.x.batch(torch.arange(5))
    with torch.no_grad():
        logits = network(sparse_rows)
        products = network.embed(sparse_rows) @ network.label_embeddings().T
        torch.testing.assert_close(logits, products)
        torch.testing.assert_close(logits, network(sparse_rows.to_dense()))
        torch.testing.assert_close(logits, network(Gathered(sparse_rows)))


class Gathered:
    """Any object that multiplies is a batch of rows."""

    def __init__(self, rows: SparseBatch) -> None:
        self.rows = rows

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        return self.rows.to_dense() @ weight


def test_the_ones_beside_the_label_vectors_stay_ones():
    problem = many_labels(40)
    method = built(problem)
    for rows in torch.arange(40).split(8):
        method.step(*batch(problem, rows))
    assert torch.equal(method.predictor.labels[:, -1], torch.ones(40))


def test_a_batch_without_any_label_changes_nothing():
    problem = many_labels(40)
    method = built(problem)
    before = {name: value.clone() for name, value in method.predictor.state_dict().items()}
    empty = to_rows(sparse.csr_array((3, 40), dtype=np.float32), CPU).lists(torch.arange(3))
    losses = method.step(problem.train.x.batch(torch.arange(3)), empty)
    assert float(losses["objective"]) == 0
    for name, value in method.predictor.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("activation", ["linear", "softplus"])
def test_the_activation_is_as_told(activation):
    config = sampled.Config(hidden=(4, 3), activation=activation)
    network = sampled.predictor(config, Shape(n_features=5, n_labels=6, n_rows=1)).eval()
    x, y = torch.randn(2, 5), torch.randn(2, 5)
    with torch.no_grad():
        gap = network(x) + network(y) - network((x + y) / 2) * 2
    assert (gap.abs().max() < 1e-5) == (activation == "linear")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "model", "weighting": "relative"}, "--weighting relative"),
        ({"negatives": 0}, "--negatives must be positive"),
        ({"lr": 0.0}, "--lr must be positive"),
        ({"dropout": 1.0}, "--dropout"),
        ({"sampler": "model", "shard_labels": True}, "with --shard-labels no process has all"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        sampled.Config(**options)


def test_the_model_cannot_choose_among_too_many_labels():
    problem = dataclasses.replace(
        many_labels(40), shape=Shape(n_features=5, n_labels=50_001, n_rows=9)
    )
    with pytest.raises(ConfigError, match="--sampler model scores all labels"):
        built(problem, sampler="model")


@pytest.mark.parametrize("n_ranks", [1, 2, 3])
def test_slices_of_ranks_begin_as_the_whole_table(n_ranks, monkeypatch):
    problem = many_labels(40)
    whole = built(problem).predictor.labels
    monkeypatch.setattr(ranks._group, "size", n_ranks)
    monkeypatch.setattr(retrieval, "BLOCK_NUMBERS", 32)  # 4 rows
    slices = []
    for rank in range(n_ranks):
        monkeypatch.setattr(ranks._group, "rank", rank)
        slices.append(built(problem, shard_labels=True).predictor.labels)
    assert torch.equal(torch.cat(slices), whole)
    assert all(len(part) <= -(-40 // n_ranks) for part in slices)


def test_a_process_without_a_label_to_hold_is_refused(monkeypatch):
    problem = many_labels(40)
    monkeypatch.setattr(ranks._group, "size", 41)
    with pytest.raises(ConfigError, match="40 labels are too few for 41 processes"):
        built(problem, shard_labels=True)


def test_every_pair_of_sampler_and_weighting_that_can_be_is_a_kind():
    kinds = methods.load("sampled").Config.KINDS
    assert len(kinds) == 22
    assert kinds["contrastive-within-batch-tail"] == {
        "loss": "contrastive", "sampler": "within-batch", "weighting": "tail"
    }  # fmt: skip


def test_a_label_without_training_rows_does_no_harm():
    targets = np.zeros((9, 4), dtype=np.uint8)
    targets[:, 0] = targets[::2, 1] = 1
    data = MultiLabelData(
        name="rare",
        inputs=np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32),
        targets=sparse.csr_array(targets),
        labels=tuple("abcd"),
    )
    rows = np.arange(9)
    split = Split(train=rows[:5], validation=rows[5:7], test=rows[7:], rule="by hand")
    problem = make_problem(data, split, CPU)
    method = built(problem, weighting="tail")
    for _ in range(5):
        losses = method.step(*batch(problem, torch.arange(5)))
    assert torch.isfinite(losses["objective"])
