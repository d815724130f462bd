from __future__ import annotations

import pytest
import torch
from tiny_text import token_problem

from export.to_onnx import export_predictor
from export.verify import check_parity
from train.errors import ConfigError
from train.loop import Position, cpu_weights, fit, seed_everything
from train.losses import Members, jaccard_contrastive, msc, prototype_members
from train.methods.abalone import PRETRAINED, Abalone, Config, FineTuning, Pretraining
from train.nets.heads import PlainRows
from train.precision import computing_in

SMALL = {
    "hidden": (16,), "projection": 8, "queue_size": 20, "batch_size": 8, "epochs": 3,
    "linear_epochs": 4, "linear_batch_size": 16, "finetune_epochs": 2, "dropout": 0.0, "lr": 3e-3,
}  # fmt: skip
LOSSES = pytest.mark.parametrize("loss", PRETRAINED)


def built(problem, **options):
    seed_everything(3)
    return Abalone(Config(**{**SMALL, **options}), problem)


def batch(problem, count=32):
    rows = torch.arange(count)
    return problem.train.x.batch(rows), problem.train.y.take(rows)


class Watcher:
    """Notes how many batches each epoch of each stage has."""

    def __init__(self) -> None:
        self.batches = []

    def on_step(self, position, n_steps, losses):
        self.batches.append((position.stage, n_steps))

    def on_epoch(self, position):
        pass


def trained(problem, **options):
    method, watcher = built(problem, **options), Watcher()
    position = Position()
    fit(
        method, problem, method.config,
        seed=3, position=position, observer=watcher, should_stop=lambda: False,
    )  # fmt: skip
    return method, position, watcher


@LOSSES
def test_contrastive_training_lowers_its_loss(loss, dense_problem):
    method = built(dense_problem, loss=loss, queue_size=4, epochs=100)
    x, y = batch(dense_problem)
    values = [method.step(x, y)["contrastive"].item() for _ in range(80)]
    assert values[-1] < values[1] - 0.2 * abs(values[1] - min(values)) - 0.05


@LOSSES
def test_rows_come_nearer_to_those_of_their_labels(loss, dense_problem):
    method = built(dense_problem, loss=loss, epochs=100, lr=1e-2, hidden=(32, 32))
    x, y = batch(dense_problem)
    history = [method.step(x, y) for _ in range(80)]
    # Where they lie against each other: the means themselves may both rise or fall.
    contrast = [(-losses["attraction"] - losses["repulsion"]).item() for losses in history]
    assert contrast[-1] > contrast[1] + 0.03


def test_the_first_loss_is_that_of_the_formula(dense_problem):
    x, y = batch(dense_problem)
    for loss in ("base", "msc"):
        method = built(dense_problem, loss=loss)
        stage = method.stage
        assert isinstance(stage, Pretraining)
        z = stage.contrast.projection(method.encoder(x))
        rows, empty = Members(z, y), Members(z[:0], y[:0])
        if loss == "base":
            expected = jaccard_contrastive(rows)
        else:
            expected = msc(rows, empty, prototype_members(stage.contrast.prototypes))
        torch.testing.assert_close(method.step(x, y)["contrastive"], expected)


def test_the_released_forms_are_others(dense_problem):
    x, y = batch(dense_problem)
    for loss in ("base", "jscl"):
        values = [
            built(dense_problem, loss=loss, released_form=form).step(x, y)["contrastive"].item()
            for form in (False, True)
        ]
        assert values[0] != pytest.approx(values[1])


def test_the_queue_holds_what_the_slow_copy_said_of_the_latest_rows(dense_problem):
    method = built(dense_problem, loss="queue", queue_size=20)
    x, y = batch(dense_problem)
    for first in (0, 8, 16, 24):
        method.step(x[first : first + 8], y[first : first + 8])
    queue = method.stage.queue
    assert queue is not None
    members = queue.members()
    assert members.z.shape == (20, 8)
    latest = queue.copy(x[24:]).detach()  # its weights have not moved since
    found = (members.z[:, None] - latest).abs().amax(2).argmin(0)
    torch.testing.assert_close(members.z[found], latest)
    assert torch.equal(members.y[found], y[24:])
    assert not members.z.requires_grad


def test_the_encoder_does_not_learn_from_the_layer_that_judges_it(dense_problem):
    method = built(dense_problem, weight_decay=0.0)
    x, y = batch(dense_problem)
    before = cpu_weights(method.encoder)
    probe = method.predictor.heads.weight.clone()
    for _ in range(3):
        method.step(x, torch.zeros_like(y))  # without labels no contrastive loss has a gradient
    for name, value in cpu_weights(method.encoder).items():
        assert torch.equal(value, before[name]), name
    assert not torch.equal(method.predictor.heads.weight, probe)


def test_each_stage_has_its_own_epochs_and_batches(dense_problem):
    _, position, watcher = trained(dense_problem)
    assert watcher.batches == [(0, 4)] * 12 + [(1, 2)] * 8
    assert [epoch["stage"] for epoch in position.history] == [0] * 3 + [1] * 4
    _, _, watcher = trained(dense_problem, then="finetune")
    assert watcher.batches == [(0, 4)] * 12 + [(1, 4)] * 8
    _, _, watcher = trained(dense_problem, loss="mlm")
    assert watcher.batches == [(0, 2)] * 8


def test_linear_evaluation_leaves_the_encoder_as_it_is_and_fine_tuning_does_not(dense_problem):
    for then in ("linear", "finetune"):
        method = built(dense_problem, then=then)
        x, y = batch(dense_problem)
        method.enter_stage(1)
        before = cpu_weights(method.encoder)
        method.step(x, y)
        method.before_validation()
        same = [torch.equal(value, before[k]) for k, value in cpu_weights(method.encoder).items()]
        assert all(same) == (then == "linear")


def test_nothing_of_contrastive_training_is_kept(dense_problem):
    method, _, _ = trained(dense_problem, then="finetune")
    assert isinstance(method.stage, FineTuning)
    parts = {name.partition(".")[0] for name in method.predictor.state_dict()}
    assert parts == {"encoder", "heads"}
    assert set(method.state_dict()) == {"encoder", "predictor", "stage"}


def test_without_training_linear_layers_read_the_plain_rows(problem):
    method, _, _ = trained(problem, loss="mlm")
    x, y = batch(problem)
    assert isinstance(method.encoder, PlainRows)
    assert torch.equal(method.predictor.embed(x), x.to_dense())
    assert method.predictor(x).shape == y.shape


def test_mulcon_has_the_cross_entropy_beside_it(dense_problem):
    x, y = batch(dense_problem)
    alone, once, twice = (
        built(dense_problem, loss="mulcon", cross_entropy_weight=weight).step(x, y)["contrastive"]
        for weight in (0.0, 1.0, 2.0)
    )
    assert once > alone
    torch.testing.assert_close(twice - once, once - alone)


@pytest.mark.parametrize("options", [{}, {"then": "finetune"}, {"loss": "mlm"}], ids=str)
def test_every_network_exports_and_gives_the_same_answers(options, dense_problem):
    method, _, _ = trained(dense_problem, **options)
    predictor, (x, y) = method.predictor.eval(), batch(dense_problem)
    model = export_predictor(predictor, *(matrix.shape[1] for matrix in (x, y)))
    parity = check_parity(predictor, model, x.numpy())
    assert parity.largest_difference <= 1e-5
    assert parity.scores.std() > 0.01  # not those of layers that are zero


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("then", ["linear", "finetune"])
def test_half_precision_learns_in_float32_weights(precision, then):
    problem = token_problem(tuning="full")
    _, position, _ = trained(problem, then=then)
    with computing_in(precision, problem.device):
        method, half, _ = trained(problem, then=then, precision=precision)
    assert all(value.dtype == torch.float32 for value in method.predictor.parameters())
    assert half.history[0]["contrastive"] == pytest.approx(
        position.history[0]["contrastive"], rel=0.05
    )
    assert half.history[0]["contrastive"] != position.history[0]["contrastive"]
    assert half.history[-1]["cross_entropy"] < 1.5 * position.history[-1]["cross_entropy"]


def test_a_text_encoder_learns_contrastively():
    problem = token_problem(tuning="full")
    method = built(problem, epochs=40, encoder_lr=3e-3, queue_size=4)
    rows = torch.arange(len(problem.train))
    x, y = problem.train.x.batch(rows), problem.train.y.take(rows)
    losses = [method.step(x, y) for _ in range(40)]
    assert losses[-1]["contrastive"] < losses[1]["contrastive"] - 0.1  # from a queue that is full
    assert losses[-1]["cross_entropy"] < losses[1]["cross_entropy"]


def test_a_text_encoder_has_its_own_rate():
    method = built(token_problem(tuning="adapter"), encoder_lr=7e-4)
    stage = method.stage
    assert isinstance(stage, Pretraining)
    groups = stage.optimizer.adam.param_groups
    rates = {(group["peak"], group["weight_decay"]) for group in groups}
    assert rates == {(7e-4, 0.01), (7e-4, 0.0), (3e-3, 0.01), (3e-3, 0.0)}
    trained = {id(weight) for weight in method.encoder.parameters() if weight.requires_grad}
    with_own = {id(w) for group in groups if group["peak"] == 7e-4 for w in group["params"]}
    assert trained == with_own


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "mlm", "then": "finetune"}, "take --then linear, or method ce"),
        ({"loss": "mlm", "tuning": "full"}, "leave out --tuning full"),
        ({"temperature": 0.0}, "--temperature must be positive"),
        ({"momentum": 1.0}, "--momentum must be at least 0 and below 1"),
        ({"cross_entropy_weight": -1.0}, "--cross-entropy-weight must not be negative"),
    ],
)
def test_bad_values_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Config(**options)
