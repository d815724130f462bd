from __future__ import annotations

import torch
from torch.nn import functional

from train.nets.gaussian import Dropout, GaussianNet, LatentDecoder


def test_a_decoder_is_layers_on_row_and_latent_vector_side_by_side():
    torch.manual_seed(0)
    decoder = LatentDecoder(3, 2, (5, 4), 0.5).eval()
    x, z = torch.randn(7, 3), torch.randn(7, 2)
    second = decoder.rest[-1][0]
    weight = torch.cat([decoder.of_row.weight, decoder.of_latent.weight], 1)
    both = functional.linear(torch.cat([x, z], 1), weight, decoder.of_latent.bias)
    hidden = functional.relu(both)
    torch.testing.assert_close(decoder(x, z), functional.relu(second(hidden)))


def test_a_decoder_takes_several_latent_vectors_of_each_row():
    torch.manual_seed(0)
    decoder = LatentDecoder(3, 2, (5,), 0.0)
    x, z = torch.randn(7, 3), torch.randn(4, 7, 2)
    expected = torch.stack([decoder(x, one) for one in z])
    torch.testing.assert_close(decoder(x, z), expected)


def test_a_decoder_may_not_see_the_row():
    decoder = LatentDecoder(3, 2, (5,), 0.0, sees_row=False)
    z = torch.randn(7, 2)
    torch.testing.assert_close(decoder(torch.randn(7, 3), z), functional.relu(decoder.of_latent(z)))


def test_a_gaussian_has_a_mean_and_a_variance_for_each_latent_dimension():
    net = GaussianNet(3, (5,), 2, 0.0)
    mean, log_variance = net(torch.randn(7, 3))
    assert mean.shape == log_variance.shape == (7, 2)


def test_dropout_keeps_the_mean_and_is_off_outside_training():
    torch.manual_seed(0)
    x = torch.ones(1000, 100)
    dropped = Dropout(0.3)(x)
    assert abs((dropped == 0).float().mean().item() - 0.3) < 0.01
    torch.testing.assert_close(dropped.unique(), torch.tensor([0, 1 / 0.7]))
    assert torch.equal(Dropout(0.3).eval()(x), x)
