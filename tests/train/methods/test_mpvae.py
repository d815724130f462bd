from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from export.to_onnx import export_predictor
from export.verify import check_parity
from train.losses import gaussian_kl
from train.methods import mpvae

SMALL = {
    "hidden": (16,), "decoder_hidden": (16,), "label_hidden": (16,), "latent": 4, "samples": 7,
    "dropout": 0.0,
}  # fmt: skip


class Recorder:
    """Stands in for the optimiser and keeps the loss."""

    def step(self, loss):
        self.loss = loss


def built(problem, **options):
    torch.manual_seed(0)
    method = mpvae.build(mpvae.Config(**SMALL, **options), problem)
    rows = torch.arange(len(problem.train))
    return method, problem.train.x.take(rows), problem.train.y.take(rows)


def slow_losses(u, y):
    """-log mean_s prod_l Bernoulli(y_l; Phi(u_sl)), and the sum over P x N of exp(-5(p_p - p_n)).

    The second divided by 5 |P| |N|, averaged over samples; both averaged over rows.
    """
    p = stats.norm.cdf(u.double().detach().numpy())  # (samples, batch, labels)
    truth = y.numpy()
    likelihoods = np.where(truth > 0, p, 1 - p).prod(2)
    nll = -np.log(likelihoods.mean(0)).mean()
    ranking = 0.0
    for sample in p:
        for row, labels in zip(sample, truth, strict=True):
            true, false = row[labels > 0], row[labels == 0]
            if len(true) and len(false):
                pairs = sum(math.exp(-5 * (t - f)) for t in true for f in false)
                ranking += pairs / (5 * len(true) * len(false))
    return nll, ranking / (len(p) * len(truth))


def test_the_objective_is_the_weighted_sum(dense_problem):
    method, x, y = built(dense_problem, nll_weight=0.3, ranking_weight=4.0)
    method.optimizer = Recorder()
    net = method.predictor
    by_row, by_labels = net.encoder(x), method.label_encoder(torch.cat([x, y], 1))
    state = torch.get_rng_state()
    noise, factor_noise = torch.randn(32, 4), torch.empty(7, 1, 6).normal_()
    torch.set_rng_state(state)
    losses = method.step(x, y)

    correlated = factor_noise @ net.factor.T
    hidden = [
        net.decoder(x, own.mean + noise * own.log_variance.exp().sqrt())
        for own in (by_row, by_labels)
    ]
    nll, ranking = slow_losses(net.head(hidden[0]) + correlated, y)
    label_nll, label_ranking = slow_losses(method.label_head(hidden[1]) + correlated, y)
    kl = gaussian_kl(by_labels, by_row).mean().item()
    expected = {
        "nll": nll, "ranking": ranking,
        "label_nll": label_nll, "label_ranking": label_ranking, "kl": kl,
    }  # fmt: skip
    assert {name: loss.item() for name, loss in losses.items()} == pytest.approx(expected, rel=1e-5)
    total = 0.3 * (nll + label_nll) + 4.0 * (ranking + label_ranking) + 1.1 * kl
    assert method.optimizer.loss.item() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("label", [0.0, 1.0], ids=["no labels", "all labels"])
def test_a_row_with_no_or_all_labels_has_finite_gradients(label, dense_problem):
    method, x, y = built(dense_problem)
    y[3] = label
    method.step(x, y)
    networks = (method.predictor, method.label_encoder, method.label_head)
    assert all(torch.isfinite(p.grad).all() for network in networks for p in network.parameters())


def test_a_prediction_is_the_limit_of_many_draws(dense_problem):
    method, x, _ = built(dense_problem)
    net = method.predictor.eval()
    draws = 40_000
    with torch.no_grad():
        means = net.head(net.decoder(x, net.encoder(x).mean))
        correlated = torch.randn(draws, 1, 6) @ net.factor.T
        sampled = torch.special.ndtr(means + correlated)
        error = sampled.std(0) / math.sqrt(draws)
        assert ((net(x).sigmoid() - sampled.mean(0)).abs() < 5 * error + 1e-6).all()


def test_the_exported_graph_agrees_in_the_tails(dense_problem):
    method, x, _ = built(dense_problem)
    net = method.predictor.eval()
    with torch.no_grad():
        net.head.weight.mul_(40)  # logits from -100 to 100
        assert net(x).abs().max() > 50
    parity = check_parity(net, export_predictor(net, x.shape[1], 6), x.numpy())
    assert parity.largest_difference <= 1e-5


def test_the_rate_falls_in_equal_parts(dense_problem):
    method, x, y = built(dense_problem, epochs=8, lr=0.01, lr_decay=0.5, lr_parts=4)
    rates = []
    for _ in range(8):
        rates.append(method.optimizer.adam.param_groups[0]["lr"])
        method.step(x, y)
        method.end_epoch(0.0)
    assert rates == pytest.approx([0.01, 0.01, 0.005, 0.005, 0.0025, 0.0025, 0.00125, 0.00125])
