"""FCN, convolutional energy and crops, against the sizes of the paper and slow loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from train.crops import corner_places, crop_places, crop_rows, random_crops
from train.data.dataset import ImageShape
from train.nets.segmentation import ConvolutionalEnergy, CropAverage, FullyConvolutional

HORSES = ImageShape(height=32, width=32)
SMALL = ImageShape(height=12, width=8)


def parameters(net: nn.Module) -> int:
    return sum(weight.numel() for weight in net.parameters())


def test_sizes_are_those_of_the_paper():
    assert HORSES.crop == (24, 24)
    assert parameters(FullyConvolutional(HORSES)) == 620_294
    assert parameters(ConvolutionalEnergy(HORSES)) == 2_465_089


def test_36_crops_begin_where_the_paper_says():
    offsets = (0, 2, 3, 4, 6, 8)
    assert crop_places(HORSES) == [(row, column) for row in offsets for column in offsets]
    assert corner_places(HORSES) == [(0, 0), (0, 8), (8, 0), (8, 8)]


@pytest.mark.parametrize("side", [8, 9, 13, 17, 32, 33, 64, 100])
def test_crops_of_any_size_cover_the_image(side):
    image = ImageShape(height=side, width=side)
    net = CropAverage(nn.Identity(), image)
    assert image.crop[0] % 4 == 0
    assert (net.overlap > 0).all()


def slow_fcn(net: FullyConvolutional, image: np.ndarray) -> np.ndarray:
    """By the description: softmax over two channels, the second is the horse."""
    with torch.no_grad():
        hidden = torch.from_numpy(image).permute(2, 0, 1)[None]
        maps = []
        for stride, conv, one in zip((1, 2, 2), net.stages, net.maps, strict=True):
            hidden = torch.conv2d(hidden, conv.weight, conv.bias, stride, 2).clamp_min(0)
            maps.append(torch.conv2d(hidden, one.weight, one.bias))
        up = [torch.conv_transpose2d(maps[2], net.enlarge[0].weight, None, 2, 1) + maps[1]]
        up.append(torch.conv_transpose2d(up[0], net.enlarge[1].weight, None, 2, 1) + maps[0])
        return up[1].softmax(1)[0, 1].numpy()


def test_fcn_is_the_softmax_of_two_channels():
    torch.manual_seed(0)
    net = FullyConvolutional(SMALL).double()
    height, width = SMALL.crop
    image = np.random.default_rng(0).random((height, width, 3))
    scores = net(torch.from_numpy(image.reshape(1, -1))).sigmoid()
    expected = slow_fcn(net, image)
    np.testing.assert_allclose(scores.detach().numpy().reshape(height, width), expected, atol=1e-12)


def test_energy_is_that_of_four_channels():
    torch.manual_seed(0)
    net = ConvolutionalEnergy(SMALL).double().eval()
    height, width = SMALL.crop
    x, y = torch.rand(2, height * width * 3).double(), torch.rand(2, 3, height * width).double()
    scores = net(x, y)
    for i in range(2):
        for k in range(3):
            picture = x[i].view(height, width, 3).permute(2, 0, 1)
            hidden = torch.cat([picture, y[i, k].view(1, height, width)])[None]
            for stride, conv in zip((1, 2, 2), net.stages, strict=True):
                hidden = torch.conv2d(hidden, conv.weight, conv.bias, stride, 2).relu()
            hidden = hidden.flatten(1)
            for number, layer in enumerate(net.layers):
                hidden = layer(hidden)
                hidden = hidden.relu() if number < 2 else hidden
            torch.testing.assert_close(scores[i, k], hidden[0, 0])
    torch.testing.assert_close(net(x, y[:, 0]), scores[:, 0])


def test_energy_has_the_gradient_of_finite_differences():
    torch.manual_seed(0)
    small = ImageShape(height=6, width=6)
    net = ConvolutionalEnergy(small).double().eval()
    score = net.at(torch.rand(1, 48).double())
    assert torch.autograd.gradcheck(score, torch.rand(1, 16).double().requires_grad_())


def test_dropout_is_active_in_training_alone():
    net = ConvolutionalEnergy(SMALL)
    height, width = SMALL.crop
    x, y = torch.rand(1, height * width * 3), torch.rand(1, height * width)
    assert net(x, y) != net(x, y)
    net.eval()
    assert net(x, y) == net(x, y)


def test_averaging_equals_a_slow_canvas():
    torch.manual_seed(0)
    net = CropAverage(FullyConvolutional(HORSES), HORSES).eval()
    images = torch.rand(2, 32 * 32 * 3)
    with torch.no_grad():
        scores = net(images).sigmoid().numpy().reshape(2, 32, 32)
        for number in range(2):
            canvas, counts = np.zeros((32, 32)), np.zeros((32, 32))
            picture = images[number].view(32, 32, 3)
            for top, left in crop_places(HORSES):
                crop = picture[top : top + 24, left : left + 24].reshape(1, -1)
                answer = net.network(crop).sigmoid().numpy().reshape(24, 24)
                canvas[top : top + 24, left : left + 24] += answer
                counts[top : top + 24, left : left + 24] += 1
            np.testing.assert_allclose(scores[number], canvas / counts, atol=1e-5)


def test_rows_of_the_size_of_a_crop_are_one():
    net = CropAverage(FullyConvolutional(SMALL), SMALL).eval()
    crop = torch.rand(2, SMALL.crop_pixels * 3)
    assert torch.equal(net(crop), net.network(crop))


def test_random_crops_cut_image_and_mask_alike_and_reach_every_place():
    torch.manual_seed(0)
    masks = torch.arange(96.0).expand(300, 96)
    images = masks.repeat_interleave(3, 1)
    x, y = random_crops(images, masks, SMALL)
    assert torch.equal(x.view(300, -1, 3)[:, :, 1], y)
    places = {(int(first) // 8, int(first) % 8) for first in y[:, 0]}
    height, width = SMALL.crop
    assert places == {(r, c) for r in range(12 - height + 1) for c in range(8 - width + 1)}
    for row in y[:20]:
        top, left = int(row[0]) // 8, int(row[0]) % 8
        assert torch.equal(row, crop_rows(masks[:1], SMALL, top, left)[0])
