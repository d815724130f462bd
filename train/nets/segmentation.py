"""Networks over images whose labels are pixels; rows and masks are flat, see `ImageShape`.

Both are those of SEAL's image segmentation (Lee et al., NeurIPS 2022, after Gygli et al., ICML
2017). They take crops of one size; `CropAverage` makes a predictor of whole images of them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from train.crops import CHANNELS, as_images, crop_places, crop_rows
from train.data.dataset import ImageShape
from train.nets.inference import LEAST_DISTANCE
from train.precision import may_be_lowered

MASK_DROPOUT = 0.25

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
        widths = (128 * (height // 4) * (width // 4), 384, 192, 1)
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Score masks `y`, (batch, pixels) or (batch, K, pixels), of crops x: (batch[, K])."""
        return self.at(x)(y)

    def at(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """Bind the crops: what the first layer makes of them is computed once for all masks.

        The weights are bound too, as they are now: inference calls with copies of them.
        """
        first, *stages = _weights(self.stages)
        layers = _weights(self.layers)
        of_image = functional.conv2d(
            as_images(x, *self.crop), first[0][:, :CHANNELS], first[1], padding=2
        )

        @may_be_lowered
        def seen(masks: Tensor) -> Tensor:
            channel = masks.reshape(-1, 1, *self.crop)
            of_mask = functional.conv2d(channel, first[0][:, CHANNELS:], padding=2)
            beside = of_image.to(of_mask.dtype).unsqueeze(1)
            hidden = functional.relu((of_mask.unflatten(0, masks.shape[:2]) + beside).flatten(0, 1))
            for weight, bias in stages:
                hidden = functional.relu(
                    functional.conv2d(hidden, weight, bias, stride=2, padding=2)
                )
            return hidden.flatten(1)

        def score(y: Tensor) -> Tensor:
            masks = y if y.dim() == 3 else y.unsqueeze(1)
            scores = self._value(seen(masks), layers).view(masks.shape[:2])
            return scores if y.dim() == 3 else scores.squeeze(1)

        return score

    def _value(self, hidden: Tensor, layers: Weights) -> Tensor:
        """The score of what the convolutions saw, (masks, 128 * height * width / 16)."""
        hidden = functional.relu(functional.linear(hidden, *layers[0]))
        hidden = functional.dropout(hidden, MASK_DROPOUT, self.training)
        hidden = functional.relu(functional.linear(hidden, *layers[1]))
        return functional.linear(hidden, *layers[2])


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
