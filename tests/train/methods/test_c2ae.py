from __future__ import annotations

import pytest
import torch

from train.errors import ConfigError
from train.losses import exponential_ranking
from train.methods.c2ae import Config, build, latent_loss, latent_size, predictor
from train.problem import Shape

SMALL = Config(hidden=(8, 7), dropout=0.0)


def codes(rows: int, latent: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, latent, generator=generator, dtype=torch.float64) - 0.5


def slow_latent_loss(x, e, weight):
    """Squared distance, and how far each code's columns are from orthonormal, entry by entry."""
    rows, latent = x.shape
    total = sum((x[i, k] - e[i, k]).item() ** 2 for i in range(rows) for k in range(latent))
    for matrix in (x, e):
        for j in range(latent):
            for k in range(latent):
                product = sum(matrix[i, j].item() * matrix[i, k].item() for i in range(rows))
                total += weight * (product - (j == k)) ** 2
    return total


@pytest.mark.parametrize(("rows", "latent"), [(1, 1), (1, 4), (6, 1), (5, 3), (3, 5)])
@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_latent_loss_equals_the_formula(rows, latent, weight):
    x, e = codes(rows, latent, 1), codes(rows, latent, 2)
    expected = slow_latent_loss(x, e, weight)
    assert latent_loss(x, e, orthogonality=weight).item() == pytest.approx(expected, rel=1e-12)


def test_latent_loss_is_zero_for_equal_orthonormal_codes():
    x = torch.eye(4, dtype=torch.float64)[:, :3]
    assert latent_loss(x, x, orthogonality=0.5).item() == 0


def test_gradient_of_the_latent_loss_is_that_of_finite_differences():
    leaves = (codes(5, 3, 1).requires_grad_(), codes(5, 3, 2).requires_grad_())
    assert torch.autograd.gradcheck(lambda x, e: latent_loss(x, e, orthogonality=0.5), leaves)


def test_a_step_minimises_latent_and_output_loss(dense_problem):
    method = build(SMALL, dense_problem)
    rows = torch.arange(len(dense_problem.train))
    x, y = dense_problem.train.x.take(rows), dense_problem.train.y.take(rows)
    e = method.label_encoder(y)
    latent = latent_loss(method.predictor.features(x), e, orthogonality=0.5)
    output = exponential_ranking(method.predictor.decoder(e).sigmoid(), y).mean()
    losses = method.step(x, y)
    torch.testing.assert_close(losses["latent"], latent.detach())
    torch.testing.assert_close(losses["output"], output.detach())
    torch.testing.assert_close(losses["objective"], (latent + 0.5 * output).detach())


def test_ranking_teaches_decoder_and_label_encoder_but_not_the_features(dense_problem):
    """With the latent loss met by both sides, only the ranking loss is left to move anything."""
    config = Config(hidden=(8,), dropout=0.0, orthogonality=0.0, weight_decay=0.0)
    method = build(config, dense_problem)
    with torch.no_grad():  # both encoders answer alike, whatever they are given
        for part in (method.predictor.features, method.label_encoder):
            part.layers[-1].weight.zero_()
            part.layers[-1].bias.fill_(0.3)
    before = {name: value.clone() for name, value in method.predictor.state_dict().items()}
    encoder = {name: value.clone() for name, value in method.label_encoder.state_dict().items()}
    rows = torch.arange(len(dense_problem.train))
    method.step(dense_problem.train.x.take(rows), dense_problem.train.y.take(rows))
    after = method.predictor.state_dict()
    for name, value in before.items():
        assert torch.equal(value, after[name]) == name.startswith("features."), name
    last = max(encoder)
    assert not torch.equal(encoder[last], method.label_encoder.state_dict()[last])


@pytest.mark.parametrize(("labels", "latent"), [(1, 1), (6, 5), (14, 11), (983, 786)])
def test_the_latent_space_is_a_share_of_the_labels(labels, latent):
    assert latent_size(Config(), labels) == latent


def test_the_predictor_decodes_the_codes_of_rows():
    net = predictor(SMALL, Shape(n_features=4, n_labels=6, n_rows=10)).eval()
    x = torch.randn(3, 4)
    features = net.features(x)
    assert features.shape == (3, 5)
    assert features.abs().max() <= 0.5
    assert torch.equal(net(x), net.decoder(features))


@pytest.mark.parametrize(
    ("option", "value"),
    [("latent_share", 0.0), ("output_weight", -1.0), ("orthogonality", -0.1), ("dropout", 1.0)],
)
def test_bad_options_are_refused_by_their_flag(option, value):
    with pytest.raises(ConfigError, match="--" + option.replace("_", "-")):
        Config(**{option: value})
