"""Text encoders: vectors against transformers' own, adapters, what is trained of them."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny_text import FAMILIES, tiny_model, tiny_shape, token_problem

from train.batches import TokenBatch
from train.errors import ConfigError
from train.feedforward import FeedForwardConfig, feature_net
from train.nets.text import Adapter, TextEncoder, insert_adapters, layers_of, pooled
from train.optimizer import parameter_groups
from train.problem import Shape


def some_tokens(seed: int = 0) -> TokenBatch:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, 70, (3, 7), generator=generator)
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6])
    return TokenBatch(torch.where(mask.bool(), ids, 0), mask)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_transformers_text_by_text(family, pooling):
    encoder = TextEncoder(tiny_shape(family, pooling=pooling)).eval()
    model, x = tiny_model(family).eval(), some_tokens()
    vectors = encoder(x)
    for row in range(3):
        length = int(x.attention_mask[row].sum())  # each by itself: no padding, no mask
        hidden = model(input_ids=x.input_ids[row : row + 1, :length]).last_hidden_state[0]
        expected = hidden[0] if pooling == "cls" else hidden.mean(0)
        torch.testing.assert_close(vectors[row], expected, rtol=1e-4, atol=1e-5)


def test_a_text_without_tokens_has_a_finite_mean():
    assert pooled(torch.ones(1, 2, 3), torch.zeros(1, 2, dtype=torch.bool), "mean").tolist() == [
        [0.0, 0.0, 0.0]
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_begin_as_nothing_and_are_all_that_is_trained(family):
    plain = TextEncoder(tiny_shape(family)).eval()
    adapted = TextEncoder(tiny_shape(family, tuning="adapter")).eval()
    x = some_tokens()
    assert torch.equal(plain(x), adapted(x))
    trained = {name for name, weight in adapted.named_parameters() if weight.requires_grad}
    assert len([part for part in adapted.modules() if isinstance(part, Adapter)]) == 2
    assert len(trained) == 2 * 4
    assert all(".down." in name or ".up." in name for name in trained)


def test_an_adapter_is_a_bottleneck_beside_what_it_follows():
    inner = torch.nn.Linear(3, 5).double()
    adapter = Adapter(inner, 5, 2).double()
    torch.nn.init.normal_(adapter.up.weight)
    x = torch.randn(4, 3, dtype=torch.float64)
    hidden = inner(x)
    narrow = (hidden @ adapter.down.weight.T + adapter.down.bias).clamp_min(0)
    expected = hidden + narrow @ adapter.up.weight.T + adapter.up.bias
    torch.testing.assert_close(adapter(x), expected)


def test_other_architectures_take_no_adapters():
    strange = torch.nn.Sequential(torch.nn.ModuleList([torch.nn.Linear(2, 2)]))
    with pytest.raises(ConfigError, match="not for Sequential: use --tuning full or frozen"):
        insert_adapters(strange, 2, 2)
    assert len(layers_of(torch.nn.Linear(2, 2))) == 0


def test_a_frozen_encoder_has_no_dropout_and_nothing_to_train():
    encoder = TextEncoder(tiny_shape(tuning="frozen"))
    for same in (encoder, encoder.train()):
        assert not any(part.training for part in same.modules())
    assert not any(weight.requires_grad for weight in encoder.parameters())


def test_dropout_of_a_trained_one_follows_the_mode():
    encoder, x = TextEncoder(tiny_shape()), some_tokens()
    assert not torch.equal(encoder.train()(x), encoder(x))
    assert torch.equal(encoder.eval()(x), encoder(x))


def gradients(checkpointing: bool) -> list[torch.Tensor]:
    torch.manual_seed(1)
    encoder = TextEncoder(tiny_shape(checkpointing=checkpointing)).train()
    torch.manual_seed(2)  # of dropout
    copy.deepcopy(encoder)(some_tokens())
    torch.manual_seed(2)
    encoder(some_tokens()).square().sum().backward()
    return [weight.grad for weight in encoder.parameters() if weight.grad is not None]


def test_checkpointing_changes_no_gradient():
    plain, again = gradients(checkpointing=False), gradients(checkpointing=True)
    assert len(plain) == len(again)
    for one, other in zip(plain, again, strict=True):
        torch.testing.assert_close(one, other)


def test_a_network_is_rebuilt_from_plain_values():
    problem = token_problem(tuning="adapter")
    shape = Shape.from_values(problem.shape.values())
    assert shape.encoder.weights is None
    encoder = feature_net(FeedForwardConfig(), problem.shape)
    rebuilt = feature_net(FeedForwardConfig(), shape)
    rebuilt.load_state_dict(encoder.state_dict())
    x = some_tokens()
    assert torch.equal(encoder.eval()(x), rebuilt.eval()(x))


def test_an_encoder_has_its_own_rate_and_its_biases_do_not_decay():
    network = torch.nn.Sequential(TextEncoder(tiny_shape()), torch.nn.Linear(16, 2))
    groups = parameter_groups(network, encoder_lr=0.5)
    assert groups[0]["params"] == list(network[1].parameters())
    assert "lr" not in groups[0]
    assert [group["lr"] for group in groups[1:]] == [0.5, 0.5]
    assert groups[2]["weight_decay"] == 0
    names = {id(weight): name for name, weight in network[0].named_parameters()}
    undecayed = {names[id(weight)] for weight in groups[2]["params"]}
    assert undecayed == {n for n in names.values() if n.endswith("bias") or "LayerNorm" in n}
    assert sum(len(group["params"]) for group in groups) == len(list(network.parameters()))


def test_without_an_encoder_there_is_one_group():
    network = torch.nn.Linear(3, 2)
    assert parameter_groups(network, encoder_lr=1.0) == [{"params": list(network.parameters())}]
