"""The contract of methods whose networks may begin with a text encoder that is trained."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from tiny_text import is_for_tokens, token_problem

from train import methods
from train.batches import TokenBatch, batch_order, scoring_order
from train.errors import ConfigError
from train.loop import (
    Position,
    cpu_weights,
    fit,
    predict,
    restore,
    seed_everything,
    training_state,
)

SMALL = {
    "hidden": (8,), "global_units": 4, "samples": 3, "inference_steps": 3, "loss_steps": 1,
    "task_steps": 1, "batch_size": 8, "epochs": 2,
}  # fmt: skip
NAMES = [name for name in methods.available() if is_for_tokens(methods.load(name).Config)]
for_tokens = pytest.mark.parametrize("name", NAMES)
tunings = pytest.mark.parametrize("tuning", ["adapter", "full"])


def small_config(name: str, **options: object):
    config_class = methods.load(name).Config
    known = {field.name for field in dataclasses.fields(config_class)}
    values = {**SMALL, "encoder_lr": 1e-2, **options}
    return config_class(**{key: value for key, value in values.items() if key in known})


class Counter:
    """Counts batches, and says when there were enough of them."""

    def __init__(self, enough: int | None) -> None:
        self.steps, self.enough = 0, enough

    def on_step(self, *_):
        self.steps += 1

    def on_epoch(self, *_):
        pass

    def should_stop(self) -> bool:
        return self.steps == self.enough


def trained(name, problem, stop_after=None, position=None, method=None):
    config = small_config(name)
    if method is None:
        seed_everything(3)
        method = methods.load(name).build(config, problem)
    position, counter = position or Position(), Counter(stop_after)
    fit(
        method, problem, config,
        seed=3, position=position, observer=counter, should_stop=counter.should_stop,
    )  # fmt: skip
    return method, position


def whole_batch(problem):
    rows = torch.arange(len(problem.train))
    return problem.train.x.batch(rows), problem.train.y.take(rows)


def test_there_are_some():
    assert {"ce", "seal", "spen", "dvn", "nce"} <= set(NAMES)


@for_tokens
@tunings
def test_every_weight_learns_but_those_that_adapters_leave_alone(name, tuning):
    problem = token_problem(tuning=tuning)
    seed_everything(3)
    method = methods.load(name).build(small_config(name), problem)
    before = {key: value.clone() for key, value in method.predictor.named_parameters()}
    for _ in range(3):
        losses = method.step(*whole_batch(problem))
        assert all(torch.isfinite(loss) for loss in losses.values())
    after = dict(method.predictor.named_parameters())
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    expected = {key for key, value in after.items() if value.requires_grad}
    assert changed == expected


@for_tokens
def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(name):
    problem = token_problem(tuning="adapter")
    whole, whole_position = trained(name, problem)
    stopped, position = trained(name, problem, stop_after=4)
    state = training_state(stopped, position)
    seed_everything(99)
    resumed = methods.load(name).build(small_config(name), problem)
    resumed, position = trained(name, problem, None, restore(state, resumed), resumed)
    assert position.best_epoch == whole_position.best_epoch
    for key, value in cpu_weights(whole.predictor).items():
        assert torch.equal(value, cpu_weights(resumed.predictor)[key]), key


@pytest.mark.parametrize("name", ["ce", "seal"])
def test_texts_are_learned(name):
    problem = token_problem()
    config = small_config(name, lr=1e-2, encoder_lr=1e-2, dropout=0.0)
    seed_everything(3)
    method = methods.load(name).build(config, problem)
    x, y = whole_batch(problem)
    before = method.step(x, y)["cross_entropy"]
    for _ in range(60):
        after = method.step(x, y)["cross_entropy"]
    assert after < 0.3 * before


@for_tokens
def test_saved_weights_and_plain_sizes_give_the_same_predictor(name):
    from train.problem import Shape

    problem = token_problem(tuning="adapter")
    module, config = methods.load(name), small_config(name)
    predictor = module.predictor(config, problem.shape).eval()
    rebuilt = module.predictor(config, Shape.from_values(problem.shape.values())).eval()
    rebuilt.load_state_dict(predictor.state_dict())
    x, y = whole_batch(problem)
    assert torch.equal(predictor(x), rebuilt(x))
    assert predictor(x).shape == y.shape


def test_scores_are_in_the_order_of_the_rows_whatever_their_lengths():
    problem = token_problem()
    network = methods.load("ce").predictor(small_config("ce"), problem.shape).eval()
    scores = predict(network, problem.test.x, problem.device)
    for row in range(len(problem.test)):
        alone = network(problem.test.x.take(torch.tensor([row]))).sigmoid().detach().numpy()
        assert scores[row] == pytest.approx(alone[0], abs=1e-5)


def test_batches_hold_texts_of_a_length_and_every_row_once():
    lengths = torch.randint(1, 100, (1000,), generator=torch.Generator().manual_seed(0))
    batches = batch_order(1000, 8, seed=1, epoch=0, lengths=lengths)
    again = batch_order(1000, 8, seed=1, epoch=0, lengths=lengths)
    other = batch_order(1000, 8, seed=1, epoch=1, lengths=lengths)
    assert torch.equal(torch.cat(batches), torch.cat(again))
    assert not torch.equal(torch.cat(batches), torch.cat(other))
    assert sorted(torch.cat(batches).tolist()) == list(range(1000))
    spread = [int(lengths[batch].max() - lengths[batch].min()) for batch in batches]
    assert sum(spread) / len(spread) < 5
    first = torch.tensor([float(lengths[batch].float().mean()) for batch in batches])
    assert not torch.equal(first, first.sort().values)  # the short ones do not come first


def test_long_texts_are_scored_in_small_batches():
    problem = token_problem()
    order = scoring_order(problem.train.x)
    assert sorted(torch.cat(order).tolist()) == list(range(len(problem.train)))


def test_tokens_are_no_features():
    batch = TokenBatch(torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.int64))
    assert (len(batch), batch.shape, len(batch[:1])) == (2, (2, 3), 1)
    with pytest.raises(ConfigError, match="use --tuning frozen or --encoder tfidf"):
        batch.to_dense()
    with pytest.raises(ConfigError, match="use --tuning frozen or --encoder tfidf"):
        batch @ torch.ones(3, 1)
