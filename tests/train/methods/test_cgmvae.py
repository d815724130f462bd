from __future__ import annotations

import math

import pytest
import torch

from train.config import PRESETS, read_preset
from train.errors import ConfigError
from train.losses import Gaussian, binary_cross_entropy, gaussian_kl, label_contrastive, mixture_kl
from train.methods import cgmvae

SMALL = {
    "hidden": (16,), "decoder_hidden": (16,), "label_hidden": (16,), "latent": 4, "embedding": 8,
    "dropout": 0.0,
}  # fmt: skip

# Bai et al., ICML 2022, Table 7: lr, alpha, beta, E, dropout, batch.
TABLE_7 = {
    "ebird": (0.001, 1.0, 0.5, 2048, 0.5, 128),
    "bookmarks": (0.002, 1.0, 1.0, 2048, 0.5, 128),
    "nus_vec": (0.004, 1.0, 0.5, 1024, 0.5, 256),
    "mirflickr": (0.001, 2.0, 0.5, 2048, 0.5, 128),
    "reuters21578": (0.005, 2.0, 1.0, 2048, 0.5, 128),
    "reuters_k500": (0.005, 2.0, 1.0, 2048, 0.5, 128),
    "scene": (0.003, 1.0, 0.5, 512, 0.3, 128),
    "sider": (0.002, 1.0, 0.5, 512, 0.5, 128),
    "yeast": (0.002, 1.0, 0.5, 512, 0.5, 128),
    "delicious": (0.001, 1.0, 0.5, 2048, 0.5, 128),
}


class Recorder:
    """Stands in for the optimiser and keeps the loss."""

    def step(self, loss):
        self.loss = loss


def built(problem, **options):
    torch.manual_seed(0)
    method = cgmvae.build(cgmvae.Config(**SMALL, **options), problem)
    rows = torch.arange(len(problem.train))
    return method, problem.train.x.take(rows), problem.train.y.take(rows)


def drawn_twice(method, x):
    """The posterior of the rows and the draw of it that the next step will make."""
    posterior = method.predictor.encoder(x)
    state = torch.get_rng_state()
    z = posterior.sample()
    torch.set_rng_state(state)
    return posterior, z


@pytest.mark.parametrize("dataset", TABLE_7)
def test_released_presets_are_those_of_table_7(dataset):
    config = read_preset(PRESETS / dataset / "cgmvae.toml", cgmvae.Config, name="released")
    assert TABLE_7[dataset] == (
        config.lr, config.contrastive_weight, config.reconstruction_weight,
        config.embedding, config.dropout, config.batch_size,
    )  # fmt: skip
    assert config.cross_entropy_weight == 2 * config.reconstruction_weight


def test_the_objective_is_the_weighted_sum(dense_problem):
    weights = {"cross_entropy": 0.5, "reconstruction": 0.7, "kl": 3.0, "contrastive": 2.0}
    method, x, y = built(dense_problem, **{f"{name}_weight": w for name, w in weights.items()})
    method.optimizer = Recorder()
    net, (posterior, z) = method.predictor, drawn_twice(method, x)
    losses = method.step(x, y)

    labels = method.label_encoder(net.labels)
    means = torch.stack(
        [labels.mean[row > 0].mean(0) if row.any() else torch.zeros(4) for row in y]
    )
    by_row, by_labels = net.decode(x, z), net.decode(x, means)
    both = torch.cat([label_contrastive(by_row, y), label_contrastive(by_labels, y)])
    expected = {
        "cross_entropy": binary_cross_entropy(by_row, y),
        "reconstruction": binary_cross_entropy(by_labels, y),
        "kl": mixture_kl(z, posterior, labels, y).mean(),
        "contrastive": both.mean(),
    }
    assert losses.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(losses[name], value.detach(), msg=name)
    total = sum(weights[name] * value for name, value in expected.items())
    torch.testing.assert_close(method.optimizer.loss, total)


def test_one_gaussian_encodes_the_sum_of_the_embeddings(dense_problem):
    method, x, y = built(dense_problem, prior="uni", contrastive=False)
    method.optimizer = Recorder()
    posterior, _ = drawn_twice(method, x)
    losses = method.step(x, y)
    sums = torch.stack([method.predictor.labels[row > 0].sum(0) for row in y])
    prior = method.label_encoder(sums)
    torch.testing.assert_close(losses["kl"], gaussian_kl(posterior, prior).mean().detach())
    assert set(losses) == {"cross_entropy", "kl"}


def test_without_kl_the_label_encoder_is_not_asked(dense_problem):
    method, x, y = built(dense_problem, kl=False)
    before = [parameter.clone() for parameter in method.label_encoder.parameters()]
    assert set(method.step(x, y)) == {"cross_entropy", "contrastive"}
    for parameter, old in zip(method.label_encoder.parameters(), before, strict=True):
        assert torch.equal(parameter, old)


def test_a_prediction_decodes_the_mean(dense_problem):
    method, x, _ = built(dense_problem)
    net = method.predictor.eval()
    torch.testing.assert_close(net(x), net.decode(x, net.encoder(x).mean))
    assert torch.equal(net(x), net(x))


def test_a_normalised_embedding_bounds_the_logits_by_the_length_of_the_label(dense_problem):
    method, x, _ = built(dense_problem, normalize=True)
    net = method.predictor
    with torch.no_grad():
        net.embedding.weight.mul_(1e4)
        assert (net(x).abs() <= net.labels.norm(dim=1) * 1.0001).all()


def test_the_decoder_can_be_kept_from_the_row(dense_problem):
    method, x, _ = built(dense_problem, decoder_input="z")
    z = torch.randn(len(x), 4)
    assert torch.equal(method.predictor.decode(x, z), method.predictor.decode(x + 1, z))


def test_the_divergence_pulls_a_row_to_its_labels(dense_problem):
    method, x, y = built(dense_problem, contrastive=False, kl_weight=10.0, lr=0.01)

    def divergence() -> float:
        torch.manual_seed(1)
        posterior, z = drawn_twice(method, x)
        labels = method.label_encoder(method.predictor.labels)
        return mixture_kl(z, posterior, Gaussian(*labels), y).mean().item()

    before = divergence()
    for _ in range(30):
        method.step(x, y)
    assert divergence() < 0.5 * before


def test_the_rate_follows_cosines_with_restarts(dense_problem):
    method, x, y = built(dense_problem, lr=0.01, min_lr=0.001, cycle=4)
    rates = []
    for _ in range(13):
        rates.append(method.optimizer.adam.param_groups[0]["lr"])
        method.step(x, y)
        method.end_epoch(0.0)
    phases = [epoch / 4 for epoch in range(4)] + [epoch / 8 for epoch in range(8)] + [0.0]
    expected = [0.001 + 0.009 * (1 + math.cos(math.pi * phase)) / 2 for phase in phases]
    assert rates == pytest.approx(expected)


def test_a_rate_below_the_least_one_is_refused():
    with pytest.raises(ConfigError, match=r"--min-lr .* must not exceed --lr"):
        cgmvae.Config(lr=1e-4)
