"""Networks over images whose labels are pixels; rows and masks are flat, see `ImageShape`.

Both are those of SEAL's image segmentation (Lee et al., NeurIPS 2022, after Gygli et al., ICML
2017). They take crops of one size; `CropAverage` makes a predictor of whole images of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain, pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from train.crops import CHANNELS, as_images, crop_places, crop_rows
from train.data.dataset import ImageShape
from train.nets.inference import LEAST_DISTANCE
from train.nets.selective import selective_scores
from train.precision import may_be_lowered

HIDDEN_WIDTHS = (384, 192)
MASK_DROPOUT = 0.25

# Of an image; where there are more, a loss that ranks them hardly looks at most. An accelerator
# would have to wait until it is known at which.
MANY_MASKS = 16

Weights: TypeAlias = list[tuple[Tensor, Tensor]]
"""Weight and bias of layers."""


class FullyConvolutional(nn.Module):
    """F(x) of SEAL for images: logits of pixels from three resolutions.

    Two channels a pixel, whose softmax is the sigmoid of their difference: that is the logit.
    """

    def __init__(self, image: ImageShape) -> None:
        super().__init__()
        self.crop = image.crop
        self.stages = nn.ModuleList(_stages(CHANNELS))
        self.maps = nn.ModuleList(nn.Conv2d(width, 2, 1) for width in (64, 128, 128))
        self.enlarge = nn.ModuleList(
            nn.ConvTranspose2d(2, 2, 4, stride=2, padding=1, bias=False) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map crops (batch, pixels * 3) to logits (batch, pixels)."""
        hidden, found = as_images(x, *self.crop), []
        for stage, to_map in zip(self.stages, self.maps, strict=True):
            hidden = _convolved(hidden, stage)
            found.append(to_map(hidden))
        middle = self.enlarge[0](found[2]) + found[1]
        both = self.enlarge[1](middle) + found[0]  # (batch, 2, height, width)
        logits: Tensor = both[:, 1] - both[:, 0]
        return logits.flatten(1)

    def begin(self, x: Tensor) -> Tensor:
        """Do what is the same in every pass: all of it, as there is no dropout."""
        logits: Tensor = self(x)
        return logits

    def finish(self, begun: Tensor) -> Tensor:
        """Do the rest."""
        return begun


class ConvolutionalEnergy(nn.Module):
    """s(x, y) of an image and a mask in [0, 1]: the mask is a fourth channel; no local part."""

    def __init__(self, image: ImageShape) -> None:
        super().__init__()
        height, width = image.crop
        self.crop = image.crop
        self.stages = nn.ModuleList(_stages(CHANNELS + 1))
        widths = (128 * (height // 4) * (width // 4), *HIDDEN_WIDTHS, 1)
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Score masks `y`, (batch, pixels) or (batch, K, pixels), of crops x: (batch[, K])."""
        return self.at(x)(y)

    def at(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """Bind the crops.

        The weights are bound too, as they are now: inference calls with copies of them.
        """
        stages, layers = _weights(self.stages), _weights(self.layers)
        weights = list(chain.from_iterable(stages + layers))
        pictures = x.unflatten(1, (-1, CHANNELS))

        def score(y: Tensor) -> Tensor:
            masks = y.reshape(-1, y.shape[-1])
            per_picture = len(masks) // len(pictures)
            numbers = torch.arange(len(pictures), device=y.device).repeat_interleave(per_picture)
            candidates = masks, numbers, self._kept(masks)
            compute = partial(self._scores, pictures)
            is_many = per_picture > MANY_MASKS and y.is_cpu and not y.requires_grad
            if is_many and torch.is_grad_enabled():
                scores = selective_scores(compute, candidates, weights)
            else:
                scores = compute(*candidates, *weights)
            return scores.view(y.shape[:-1])

        return score

    def _kept(self, masks: Tensor) -> Tensor:
        """Factors of dropout for the hidden units of each mask: 0 where they are dropped."""
        ones = masks.new_ones(len(masks), HIDDEN_WIDTHS[0])
        return functional.dropout(ones, MASK_DROPOUT, self.training)

    def _scores(
        self, pictures: Tensor, masks: Tensor, numbers: Tensor, kept: Tensor, *weights: Tensor
    ) -> Tensor:
        """Scores of masks, each beside the picture that it has the number of: (masks,)."""
        pairs = list(zip(weights[::2], weights[1::2], strict=True))
        stages, layers = pairs[:3], pairs[3:]
        planes = torch.cat([pictures.index_select(0, numbers), masks.unsqueeze(2)], 2)
        hidden = _seen(as_images(planes, *self.crop), stages)
        hidden = functional.relu(functional.linear(hidden, *layers[0])) * kept
        hidden = functional.relu(functional.linear(hidden, *layers[1]))
        return functional.linear(hidden, *layers[2]).squeeze(1)


@may_be_lowered
def _seen(hidden: Tensor, stages: Weights) -> Tensor:
    """What the convolutions make of pictures and masks: flat, (masks, hidden)."""
    for number, (weight, bias) in enumerate(stages):
        stride = 2 if number else 1
        hidden = functional.relu(functional.conv2d(hidden, weight, bias, stride, padding=2))
    return hidden.flatten(1)


@may_be_lowered
def _convolved(hidden: Tensor, stage: nn.Module) -> Tensor:
    return functional.relu(stage(hidden))


def _weights(modules: nn.ModuleList) -> Weights:
    parts: list[Any] = list(modules)
    return [(part.weight, part.bias) for part in parts]


def _stages(channels: int) -> list[nn.Conv2d]:
    """The three convolutions of both networks: whole, half and quarter resolution."""
    return [
        nn.Conv2d(channels, 64, 5, padding=2),
        nn.Conv2d(64, 128, 5, stride=2, padding=2),
        nn.Conv2d(128, 128, 5, stride=2, padding=2),
    ]


class CropAverage(nn.Module):
    """A network of crops as a predictor of whole images: probabilities of 36 crops, averaged.

    Rows of the size of a crop, as in training, go through the network alone. The averaged logits
    lie within +-13.9.
    """

    overlap: Tensor

    def __init__(self, network: nn.Module, image: ImageShape) -> None:
        super().__init__()
        self.network: Any = network
        self.image, self.places = image, crop_places(image)
        ones = torch.ones(1, image.crop_pixels)
        overlap = torch.stack([self._placed(ones, *place) for place in self.places]).sum(0)
        self.register_buffer("overlap", overlap, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, height * width * 3), or crops, to logits (batch, pixels)."""
        if self._is_crop(x):
            logits: Tensor = self.network(x)
            return logits
        # Its `len` would freeze an exported graph to the rows of its tracing.
        return self._averaged(self.network(self.crops(x)), x.shape[0])

    def begin(self, x: Tensor) -> Tensor:
        """Do what is the same in every pass; see `FullyConvolutional`."""
        begun: Tensor = self.network.begin(x)
        return begun

    def finish(self, begun: Tensor) -> Tensor:
        """Do the rest."""
        logits: Tensor = self.network.finish(begun)
        return logits

    def crops(self, x: Tensor) -> Tensor:
        """All crops of the images, those of a place together: (places * batch, pixels * 3)."""
        return torch.cat([crop_rows(x, self.image, *place) for place in self.places])

    def _averaged(self, logits: Tensor, batch: int) -> Tensor:
        """Logits (places * batch, pixels of a crop) to those of whole images (batch, pixels)."""
        by_place = logits.sigmoid().unflatten(0, (len(self.places), batch))
        parts = [self._placed(by_place[i], *place) for i, place in enumerate(self.places)]
        return torch.logit(torch.stack(parts).sum(0) / self.overlap, LEAST_DISTANCE)

    def _placed(self, masks: Tensor, top: int, left: int) -> Tensor:
        """Masks of crops (batch, pixels of a crop) in the middle of nothing: (batch, pixels)."""
        (height, width), image = self.image.crop, self.image
        sides = (left, image.width - left - width, top, image.height - top - height)
        return functional.pad(masks.unflatten(1, (height, width)), sides).flatten(1)

    def _is_crop(self, x: Tensor) -> bool:
        return x.shape[1] == self.image.crop_pixels * CHANNELS


class CropDescent(CropAverage):
    """`CropAverage` of gradient-based inference, which descends for every crop by itself."""

    @property
    def energy_net(self) -> nn.Module:
        """The energy network that is asked."""
        net: nn.Module = self.network.energy_net
        return net

    @property
    def start(self) -> Tensor | nn.Module:
        """Where each descent begins."""
        start: Tensor | nn.Module = self.network.start
        return start
