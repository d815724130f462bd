"""The energy family against the paper: sizes, and what each learner does to a batch."""

from __future__ import annotations

import pytest
import torch

from train.config import PRESETS, read_preset
from train.energy_learning import Dvn, DvnConfig, Nce, NceConfig, Spen, energy_net
from train.energy_learning import PretrainedConfig as SpenConfig
from train.methods import ce, seal, spen
from train.problem import Shape
from train.storage import SCHEMA_VERSION, save

# Lee et al., NeurIPS 2022, Table 17 (its cal500 row, whose two numbers are swapped, put right).
TABLE_17 = {
    "expr_fun": (561, 500, 333_000, 533_800),
    "spo_fun": (86, 500, 447_000, 597_600),
    "bibtex": (1836, 159, 958_800, 991_000),
    "cal500": (68, 174, 1_123_500, 1_158_700),
    "delicious": (500, 983, 754_000, 951_000),
    "genbase": (1186, 27, 485_600, 491_400),
    "eurlex_ev": (5000, 3993, 4_747_500, 5_546_500),
}


def parameters(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("dataset", TABLE_17)
def test_networks_have_the_sizes_of_table_17(dataset):
    n_features, n_labels, task, energy = TABLE_17[dataset]
    shape = Shape(n_features=n_features, n_labels=n_labels, n_rows=1)
    folder = PRESETS / dataset
    assert parameters(ce.predictor(read_preset(folder / "ce.toml", ce.Config), shape)) == task
    assert parameters(energy_net(read_preset(folder / "spen.toml", spen.Config), shape)) == energy
    config = read_preset(folder / "seal.toml", seal.Config, variant="nce")
    assert parameters(seal.predictor(config, shape)) == task


def whole_batch(problem):
    rows = torch.arange(len(problem.train))
    return problem.train.x.batch(rows), problem.train.y.take(rows)


@pytest.mark.parametrize(
    ("learner", "config"),
    [(Spen, SpenConfig), (Dvn, DvnConfig), (Nce, NceConfig)],
    ids=["spen", "dvn", "nce"],
)
def test_the_score_of_the_truth_rises_above_that_of_the_empty_set(learner, config, dense_problem):
    torch.manual_seed(0)
    method = learner(config(hidden=(16,), global_units=8, dropout=0.0, lr=0.01), dense_problem)
    x, y = whole_batch(dense_problem)

    def advantage() -> float:
        with torch.no_grad():
            return (
                (method.energy_net(x, y) - method.energy_net(x, torch.zeros_like(y))).mean().item()
            )

    for stage in range(1, method.stages):
        for _ in range(20):
            method.step(x, y)
        method.enter_stage(stage)
    before = advantage()
    for _ in range(40):
        method.step(x, y)
    assert advantage() > before + 0.5


def test_the_network_of_stage_0_is_frozen_in_stage_1(dense_problem):
    method = Nce(NceConfig(hidden=(16,), global_units=8), dense_problem)
    x, y = whole_batch(dense_problem)
    method.step(x, y)
    method.enter_stage(1)
    before = {key: value.clone() for key, value in method.task_net.state_dict().items()}
    method.step(x, y)
    after = method.task_net.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_a_static_loss_net_can_come_from_a_finished_run(tmp_path, dense_problem):
    sizes = {"hidden": (16,), "global_units": 8}
    dvn = Dvn(DvnConfig(**sizes), dense_problem)
    save({"schema": SCHEMA_VERSION, "weights": dvn.predictor.state_dict()}, tmp_path / "model.pt")
    config = seal.Config(**sizes, loss="regression", static=True, energy_run=tmp_path / "model.pt")
    method = seal.build(config, dense_problem)
    assert method.stages == 1
    for key, value in dvn.energy_net.state_dict().items():
        assert torch.equal(value, method.loss_net.state_dict()[key])
    method.step(*whole_batch(dense_problem))
    for key, value in dvn.energy_net.state_dict().items():
        assert torch.equal(value, method.loss_net.state_dict()[key])


def test_a_run_without_an_energy_network_is_refused(tmp_path, dense_problem):
    save({"schema": SCHEMA_VERSION, "weights": {}}, tmp_path / "model.pt")
    config = seal.Config(loss="nce", static=True, energy_run=tmp_path / "model.pt")
    with pytest.raises(seal.ConfigError, match="holds no energy network"):
        seal.build(config, dense_problem)


def test_a_run_of_other_sizes_is_refused(tmp_path, dense_problem):
    dvn = Dvn(DvnConfig(hidden=(16,), global_units=8), dense_problem)
    save({"schema": SCHEMA_VERSION, "weights": dvn.predictor.state_dict()}, tmp_path / "model.pt")
    config = seal.Config(loss="regression", static=True, energy_run=tmp_path / "model.pt")
    with pytest.raises(seal.ConfigError, match="has other sizes"):
        seal.build(config, dense_problem)


@pytest.mark.parametrize("loss", ["ranking", "regression-s"])
def test_losses_without_a_static_form_are_refused(loss):
    with pytest.raises(seal.ConfigError, match="has no static form"):
        seal.Config(loss=loss, static=True)
