from __future__ import annotations

import pickle  # noqa: TID251 - to make the file that must be refused
from dataclasses import replace

import pytest
import torch

from train import storage
from train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from train.errors import CheckpointError
from train.methods import ce, dvn, seal
from train.problem import Shape


@pytest.fixture
def checkpoint():
    torch.manual_seed(0)
    network = ce.predictor(ce.Config(hidden=(5,)), Shape(n_features=3, n_labels=2, n_rows=4))
    return Checkpoint(
        name="some-ce",
        method="ce",
        task="multilabel",
        config={"hidden": [5]},
        dataset="some",
        shape={"n_features": 3, "n_labels": 2, "n_rows": 4},
        labels=["a", "b"],
        features=[],
        scaling={"mean": torch.ones(3), "scale": torch.full((3,), 2.0)},
        weights=network.state_dict(),
        thresholds={"tuned": 0.5, "per_label": [0.5, 0.5]},
        scores={"test": {}, "validation": {}},
        split={},
        seed=0,
        epoch=1,
        probe=torch.zeros(1, 3),
        versions={},
    )


def test_what_is_loaded_scores_raw_rows_as_the_trained_network_scored_scaled_ones(
    checkpoint, tmp_path
):
    save_checkpoint(checkpoint, tmp_path / "model.pt")
    loaded = load_checkpoint(tmp_path / "model.pt")
    plain = replace(checkpoint, scaling=None).predictor()
    x = torch.randn(4, 3)
    assert torch.equal(loaded.predictor()(x), plain((x - 1) / 2))
    assert not loaded.predictor().training


def test_a_file_from_before_there_was_a_teacher_has_none(checkpoint, tmp_path):
    values = vars(checkpoint).copy()
    del values["teacher"]
    storage.save(values, tmp_path / "model.pt")
    assert load_checkpoint(tmp_path / "model.pt").teacher == {}
    del values["weights"]
    storage.save(values, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="it lacks weights"):
        load_checkpoint(tmp_path / "model.pt")


@pytest.mark.parametrize("loss", ["nce", "ranking", "regression", "regression-s", "margin"])
def test_a_loss_net_is_asked_by_itself_from_where_its_loss_begins(checkpoint, loss):
    torch.manual_seed(1)
    shape = Shape.from_values(checkpoint.shape)
    config = seal.Config(loss=loss, hidden=(5,), global_units=3)
    loss_net = seal.loss_net(config, shape)
    taught = replace(
        checkpoint,
        method="seal",
        config={"loss": loss, "hidden": [5], "global_units": 3},
        teacher=loss_net.state_dict(),
        scaling=None,
    )
    x = torch.randn(4, 3)
    _, path = taught.energy_predictor().with_path(x)
    is_value = loss.startswith("regression")
    start = torch.zeros(4, 2) if is_value else taught.predictor()(x).sigmoid().detach()
    assert path.shape == (4, 31 if is_value else 21, 1, 2)
    torch.testing.assert_close(path[:, 0, 0].float(), start)
    energies = -loss_net(x, path[:, :, 0].float()).detach()
    assert (energies.min(1).values <= energies[:, 0]).all()


def test_a_model_without_a_teacher_has_no_energy_network(checkpoint):
    with pytest.raises(CheckpointError, match="'ce' model holds no energy network"):
        checkpoint.energy_predictor()


def test_embeddings_of_labels_are_those_of_the_network(checkpoint):
    assert torch.equal(checkpoint.label_embeddings(), checkpoint.weights["labels"])


def test_a_network_without_embeddings_of_labels_has_none(checkpoint):
    config, shape = dvn.Config(hidden=(5,)), Shape.from_values(checkpoint.shape)
    weights = dvn.predictor(config, shape).state_dict()
    other = replace(checkpoint, method="dvn", weights=weights)
    assert other.label_embeddings() is None


class Bomb:
    def __reduce__(self):
        return (print, ("code from the file ran",))


def test_a_pickle_is_refused_and_not_run(tmp_path, capsys):
    path = tmp_path / "model.pt"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match=r"is not a model\.pt"):
        load_checkpoint(path)
    torch.save({"schema": 1, "bomb": Bomb()}, path)
    with pytest.raises(CheckpointError, match=r"is not a model\.pt"):
        load_checkpoint(path)
    assert "ran" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 cut short"])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"is not a model\.pt, or it is damaged"):
        load_checkpoint(path)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        load_checkpoint(tmp_path / "model.pt")


@pytest.mark.parametrize("values", [{"schema": 99}, {}, [1, 2]])
def test_an_unknown_schema_is_refused_by_its_number(tmp_path, values):
    torch.save(values, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="has checkpoint schema"):
        load_checkpoint(tmp_path / "model.pt")


def test_a_checkpoint_that_lacks_something_is_told_what(checkpoint, tmp_path):
    values = dict(vars(checkpoint))
    del values["labels"]
    storage.save(values, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="lacks labels"):
        load_checkpoint(tmp_path / "model.pt")


def test_weights_of_another_shape_are_refused(checkpoint):
    with pytest.raises(CheckpointError, match="does not fit method 'ce'"):
        replace(checkpoint, config={"hidden": [6]}).predictor()


def test_a_failed_save_leaves_the_old_file_and_no_scrap(checkpoint, tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    save_checkpoint(checkpoint, path)
    before = path.read_bytes()

    def disk_full(values, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", disk_full)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint(checkpoint, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
