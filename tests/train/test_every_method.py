"""The contract that every method inherits on the day its file appears."""

from __future__ import annotations

import dataclasses
import tomllib

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

from export.to_onnx import export_predictor
from export.verify import check_parity
from train import methods
from train.batches import DenseRows, LabelLists, SparseBatch
from train.config import NAMED_PRESETS, PRESETS, TrainingConfig, read_preset
from train.loop import Position, cpu_weights, fit, restore, seed_everything, training_state
from train.method import Method
from train.metrics import map_by_row
from train.problem import Problem
from train.usage import method_summaries

# Small networks and few inner steps: the contract is about behaviour, not about scores.
SMALL = {
    "hidden": (16,),
    "global_units": 8,
    "samples": 5,
    "inference_steps": 4,
    "loss_steps": 2,
    "task_steps": 2,
    "decoder_hidden": (32,),
    "label_hidden": (16,),
    "latent": 4,
    "embedding": 8,
    "width": 16,
    "inner_width": 8,
    "heads": 2,
    "k": 3,
    "pos_temp": 0.5,  # at 4, most of the loss is a constant
    "neg_temp": 0.5,
    "projection": 8,
    "queue_size": 20,
    "linear_epochs": 2,
    "linear_batch_size": 8,
    "finetune_epochs": 2,
}
# Options that make another method of it, beside the kinds that a method names.
VARIANTS: dict[str, dict[str, dict[str, object]]] = {
    "cgmvae": {
        "uni": {"prior": "uni", "contrastive": False},
        "no-kl": {"kl": False, "reconstruction_weight": 1.0, "normalize": True},
        "z": {"decoder_input": "z", "latent": 16, "kl_weight": 0.01, "hidden": (32,)},
    },
    "ce": {"plus": {"plus": "asl:0.5,warp:2"}},
    "logit-adjusted": {"post-hoc": {"post_hoc": True}},
    "twoway": {level: {"level": level} for level in ("sample", "class")},
    "lamp": {mask: {"mask": mask} for mask in ("prior", "identity")},
    "seal": {
        "base": {"base": "asl"},
        "margin-base": {"base": "twoway", "loss": "margin"},
        "sampled": {"negatives": 4},
        "sampled-ranking": {"negatives": 4, "loss": "ranking"},
    },
    "mpvae": {"": {"nll_weight": 2.0, "ranking_weight": 2.0}},
}
STEPPED = [name for name in methods.available() if hasattr(methods.load(name), "build")]
FITTED = [name for name in methods.available() if name not in STEPPED]


def cases(names: list[str]) -> pytest.MarkDecorator:
    params = [
        pytest.param(name, variant, id="-".join(filter(None, [name, kind])))
        for name in names
        for kind, variant in {
            **(methods.load(name).Config.KINDS or {"": {}}),
            **VARIANTS.get(name, {}),
        }.items()
    ]
    return pytest.mark.parametrize(("name", "variant"), params)


every_method = cases(methods.available())
every_stepped_method = cases(STEPPED)
every_fitted_method = cases(FITTED)


def small_config(name: str, variant: dict[str, object], **options: object):
    config_class = methods.load(name).Config
    known = {field.name for field in dataclasses.fields(config_class)}
    small = {key: value for key, value in SMALL.items() if key in known}
    return config_class(**{**small, **variant, **options})


class StepCounter:
    """Counts batches, and says when there were enough of them."""

    def __init__(self, enough: int | None = None) -> None:
        self.steps, self.enough = 0, enough

    def on_step(self, *_):
        self.steps += 1

    def on_epoch(self, *_):
        pass

    def should_stop(self) -> bool:
        return self.steps == self.enough


def built(name: str, variant: dict[str, object], problem: Problem, **options: object) -> Method:
    seed_everything(3)
    return methods.load(name).build(small_config(name, variant, **options), problem)


def whole_batch(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.arange(len(problem.train))
    return problem.train.x.batch(rows), problem.train.y.take(rows)


def stepped(method: Method, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    """Give the method its targets as it takes them."""
    return method.step(x, LabelLists.of_dense(y) if method.takes_label_lists else y)


def trained(name: str, variant, problem: Problem, epochs: int, stop_after: int | None = None):
    """Train, perhaps stopping after some steps; return the method and where it got to."""
    config = small_config(name, variant, epochs=epochs, batch_size=8)
    seed_everything(3)
    method = methods.load(name).build(config, problem)
    position, counter = Position(), StepCounter(stop_after)
    fit(
        method, problem, config,
        seed=3, position=position, observer=counter, should_stop=counter.should_stop,
    )  # fmt: skip
    return method, position, config


def untimed(history: list[dict[str, float]]) -> list[dict[str, float]]:
    """Without the seconds, which no two runs share."""
    assert all(epoch["seconds"] > 0 for epoch in history)
    return [{k: v for k, v in epoch.items() if k != "seconds"} for epoch in history]


def fitted(name: str, variant: dict[str, object], problem: Problem) -> nn.Module:
    seed_everything(3)
    return methods.load(name).fit(small_config(name, variant), problem)


def trained_predictor(name: str, variant: dict[str, object], problem: Problem) -> nn.Module:
    if name in FITTED:
        return fitted(name, variant, problem)
    return trained(name, variant, problem, 2)[0].predictor


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    for name, value in cpu_weights(one).items():
        assert torch.equal(value, cpu_weights(other)[name]), name


@every_method
def test_scores_have_one_column_a_label(name, variant, problem):
    x, _ = whole_batch(problem)
    predictor = methods.load(name).predictor(small_config(name, variant), problem.shape)
    assert predictor(x).shape == (32, problem.shape.n_labels)


@pytest.mark.parametrize("name", methods.available())
def test_has_a_one_line_summary(name):
    summary = method_summaries()[name]
    assert (methods.load(name).__doc__ or "").startswith(summary)
    assert 20 <= len(summary) <= 100
    assert summary.endswith(".")


@pytest.mark.parametrize("name", methods.available())
def test_is_ready_with_its_defaults(name, dense_problem):
    module = methods.load(name)
    if name in FITTED:
        assert isinstance(module.fit(module.Config(), dense_problem), nn.Module)
    else:
        assert module.build(module.Config(), dense_problem).stages >= 1


@pytest.mark.parametrize("name", methods.available())
def test_has_epochs_if_and_only_if_it_is_stepped(name):
    assert issubclass(methods.load(name).Config, TrainingConfig) == (name in STEPPED)


@pytest.mark.parametrize("name", methods.available())
def test_every_kind_is_what_its_fields_choose(name):
    config_class = methods.load(name).Config
    for kind, fields in config_class.KINDS.items():
        assert config_class(**fields).variant == kind
    assert config_class().variant == next(iter(config_class.KINDS), "")


def preset_tables() -> list[object]:
    """Every table of every preset file, as (path, variant, preset name)."""
    cases = []
    for path in sorted(PRESETS.glob("*/*.toml")):
        content = tomllib.loads(path.read_text())
        named = {name: content.pop(name) for name in NAMED_PRESETS if name in content}
        variants = [key for key, value in content.items() if isinstance(value, dict)]
        tables = [(key, "auto") for key in variants or ([""] if content else [])]
        for name, table in named.items():
            tables += [(key, name) for key in (table if variants else [""])]
        for variant, name in tables:
            where = "-".join([path.parent.name, path.stem, variant, name])
            cases.append(pytest.param(path, variant, name, id=where))
    return cases


@pytest.mark.parametrize(("path", "variant", "preset"), preset_tables())
def test_every_table_of_every_preset_is_a_config(path, variant, preset):
    config_class = methods.load(path.stem).Config
    config = read_preset(path, config_class, variant=variant, name=preset)
    assert config != config_class()


@every_stepped_method
def test_wide_sparse_rows_give_the_losses_of_dense_ones(name, variant, wide_problem):
    x, y = whole_batch(wide_problem)
    assert isinstance(x, SparseBatch)
    losses = []
    for rows in (x, x.to_dense()):
        method = built(name, variant, wide_problem)
        torch.manual_seed(4)
        losses.append(stepped(method, rows, y))
    for key, loss in losses[0].items():
        torch.testing.assert_close(loss, losses[1][key], rtol=1e-3, atol=1e-5)


@every_stepped_method
def test_the_loss_falls_on_a_batch(name, variant, problem):
    method = built(name, variant, problem, dropout=0.0, lr=3e-3)
    x, y = whole_batch(problem)
    if method.takes_label_lists:  # where the labels of a row compete, only one of them can win
        y = y * (y.cumsum(1) == 1)
    losses = stepped(method, x, y)
    known = ("cross_entropy", "regression", "nll", "objective", *losses)
    key = next(name for name in known if name in losses)
    before = stepped(method, x, y)[key]
    for _ in range(80):
        after = stepped(method, x, y)[key]
    assert after < 0.8 * before


@every_method
def test_same_seed_gives_the_same_weights(name, variant, problem):
    assert_same_weights(
        trained_predictor(name, variant, problem), trained_predictor(name, variant, problem)
    )


@every_method
def test_saved_weights_give_the_same_predictor(name, variant, problem):
    predictor = trained_predictor(name, variant, problem).eval()
    rebuilt = methods.load(name).predictor(small_config(name, variant), problem.shape).eval()
    rebuilt.load_state_dict(cpu_weights(predictor))
    x, _ = whole_batch(problem)
    assert torch.equal(rebuilt(x), predictor(x))


@every_fitted_method
def test_fits_better_than_label_frequencies(name, variant, problem):
    x, y = whole_batch(problem)
    scores = fitted(name, variant, problem)(x).sigmoid().numpy()
    frequencies = np.broadcast_to(y.mean(0).numpy(), y.shape)
    assert map_by_row(scores, y.numpy()) > map_by_row(frequencies, y.numpy()) + 0.05


@every_fitted_method
@pytest.mark.parametrize("label", [0.0, 1.0], ids=["no labels", "all labels"])
def test_rows_without_or_with_all_labels_give_finite_logits(name, variant, label, dense_problem):
    x, y = whole_batch(dense_problem)
    part = dataclasses.replace(
        dense_problem.train,
        y=DenseRows(torch.full_like(y, label)),
        targets=sparse.csr_array(np.full(y.shape, label)),
    )
    predictor = fitted(name, variant, dataclasses.replace(dense_problem, train=part))
    assert torch.isfinite(predictor(x)).all()
    assert torch.isfinite(predictor(1e3 * x)).all()


@every_stepped_method
def test_every_parameter_of_the_predictor_learns(name, variant, problem):
    method = built(name, variant, problem)
    before = {key: value.clone() for key, value in method.predictor.named_parameters()}
    for _ in range(3):
        stepped(method, *whole_batch(problem))
    after = dict(method.predictor.named_parameters())
    unchanged = [key for key in before if torch.equal(before[key], after[key])]
    assert not unchanged


@every_stepped_method
@pytest.mark.parametrize("label", [0.0, 1.0], ids=["no labels", "all labels"])
def test_one_row_without_or_with_all_labels_stays_finite(name, variant, label, problem):
    method = built(name, variant, problem)
    x, y = whole_batch(problem)
    for stage in range(method.stages):
        if stage:
            method.enter_stage(stage)
        for _ in range(3):
            losses = stepped(method, x[:1], torch.full_like(y[:1], label))
            assert all(torch.isfinite(loss) for loss in losses.values())
    assert all(torch.isfinite(value).all() for value in cpu_weights(method.predictor).values())


@every_stepped_method
@pytest.mark.parametrize("stop_after", [1, 7, 18])
def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(
    name, variant, stop_after, dense_problem
):
    problem = dense_problem
    whole, whole_position, config = trained(name, variant, problem, 2)
    stopped, position, _ = trained(name, variant, problem, 2, stop_after=stop_after)
    assert position.epoch * 4 + position.step == min(stop_after, 8 * whole.stages)
    state = training_state(stopped, position)

    seed_everything(99)  # whatever happened in between
    resumed = methods.load(name).build(config, problem)
    position = restore(state, resumed)
    fit(
        resumed, problem, config,
        seed=3, position=position, observer=StepCounter(), should_stop=lambda: False,
    )  # fmt: skip
    assert_same_weights(whole.predictor, resumed.predictor)
    assert untimed(position.history) == untimed(whole_position.history)
    assert position.best_epoch == whole_position.best_epoch
    assert position.best_teacher.keys() == cpu_weights(whole.teacher).keys()
    for key, value in whole_position.best_teacher.items():
        assert torch.equal(value, position.best_teacher[key]), key


@pytest.mark.parametrize("name", methods.available())
def test_exports_and_gives_the_same_answers(name, dense_problem):
    problem, variant = dense_problem, {}  # all variants export the same network
    seed_everything(3)
    if name in FITTED:
        predictor = fitted(name, variant, problem).eval()
    else:
        predictor = methods.load(name).predictor(small_config(name, variant), problem.shape).eval()
    x, _ = whole_batch(problem)
    model = export_predictor(predictor, problem.shape.n_features, problem.shape.n_labels)
    parity = check_parity(predictor, model, x.numpy())
    assert parity.largest_difference <= 1e-5
    assert parity.scores.shape == (32, problem.shape.n_labels)
    assert np.all((parity.scores >= 0) & (parity.scores <= 1))
