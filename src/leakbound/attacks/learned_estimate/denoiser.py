"""Network that corrects the best linear estimate of an image, and its inputs about the channel."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from scipy.fft import dctn
from torch import Tensor, nn

_MULTIPLE = 8  # of which the sides of images are, because they are halved three times
_EDGES = (0.07, 0.16, 0.35)  # ends of the bands of frequencies, as parts of the highest one
BANDS = len(_EDGES) + 1
"""Bands of frequencies in which a channel is described."""
_TINY = 1e-12


@dataclass(frozen=True)
class ChannelView:
    """Channels as the network sees them: what they would leave unknown of Gaussian images.

    Attributes:
        noise: (n, d), standard deviation of the noise on each pixel.
        posterior: (n, d), standard deviation of each pixel given the noisy image.
        context: (n, bands), logarithm of the part of the variance in each band of frequencies that stays
            unknown.
    """

    noise: Float[Tensor, "n d"]
    posterior: Float[Tensor, "n d"]
    context: Float[Tensor, "n bands"]

    def chosen(self, rows: Tensor) -> ChannelView:
        """Select some of the channels."""
        return ChannelView(self.noise[rows], self.posterior[rows], self.context[rows])


class Denoiser(nn.Module):
    """U-Net that is as good as the best linear estimate before its first step, and corrects it.

    It works on blocks of 2×2 pixels, which a CPU multiplies twice as fast as single ones, and learns where in
    the image it is. The correction comes in posterior standard deviations, so that all levels need numbers of
    the same size.

    Args:
        image_shape: (colors, height, width). Height and width are multiples of 8.
        width: Channels of the finest features. The coarser ones have twice as many.
        generator: Draws the first weights.

    Raises:
        ValueError: If a side of the images is no multiple of 8.
    """

    def __init__(self, image_shape: tuple[int, int, int], width: int, generator: torch.Generator) -> None:
        super().__init__()
        colors, *sides = image_shape
        if any(side % _MULTIPLE for side in sides):
            raise ValueError(
                f"images of {sides[0]}×{sides[1]} pixels: their sides must be multiples of {_MULTIPLE}"
            )
        self.image_shape = image_shape
        self.stem = nn.Conv2d(4 * 3 * colors, width, 3, padding=1)
        self.place = nn.Parameter(torch.zeros(width, *(side // 2 for side in sides)))
        self.fine = nn.ModuleList(_Block(width) for _ in range(2))
        self.down = nn.Conv2d(width, 2 * width, 2, stride=2)
        self.coarse = nn.ModuleList(_Block(2 * width) for _ in range(2))
        self.further = nn.Conv2d(2 * width, 2 * width, 2, stride=2)
        self.bottom = nn.ModuleList(_Block(2 * width) for _ in range(2))
        self.back = nn.ConvTranspose2d(2 * width, 2 * width, 2, stride=2)
        self.coarse_again = nn.ModuleList(_Block(2 * width) for _ in range(2))
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.fine_again = nn.ModuleList(_Block(width) for _ in range(2))
        self.head = nn.Conv2d(width, 4 * colors, 3, padding=1)
        self._draw(generator)

    def _draw(self, generator: torch.Generator) -> None:
        """Draw first weights with which the network is one hidden layer. Deeper layers join in as it learns.

        Other weights would start with random deep features, which are hardly related to the error of a linear
        estimate.
        """
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                taps = math.prod(module.kernel_size) if isinstance(module, nn.Conv2d) else 1
                fan = module.in_channels * taps
                weight, bias = module.parameters()
                nn.init.uniform_(weight, -math.sqrt(3 / fan), math.sqrt(3 / fan), generator=generator)
                nn.init.uniform_(bias, -0.5, 0.5, generator=generator)
        blocks = [module for module in self.modules() if isinstance(module, _Block)]
        of_blocks = [part for block in blocks for part in (block.last, block.told)]
        for last in (self.head, self.up, self.back, *of_blocks):
            for parameter in last.parameters():
                nn.init.zeros_(parameter)

    def forward(
        self, linear: Float[Tensor, "n d"], released: Float[Tensor, "n d"], view: ChannelView
    ) -> Float[Tensor, "n d"]:
        """Correct estimates of images, without clipping.

        Args:
            linear: Their best linear estimates.
            released: Noisy images.
            view: The channel of each.
        """
        floor = 1e-6 * view.noise.amax(1, keepdim=True)  # where nothing is unknown both images agree
        scaled = (released - linear) / view.noise.clamp_min(floor + _TINY)
        noise = torch.where(view.noise > floor, scaled, 0.0)
        unsure = view.posterior.clamp_min(1e-4).log()
        # Centred and scaled, so that no input drowns the image before the first nonlinear layer.
        context = torch.cat([2 * linear, noise / 2, unsure - unsure.mean(1, keepdim=True)], dim=1)
        colors, height, width = self.image_shape
        features = F.pixel_unshuffle(context.view(-1, 3 * colors, height, width), 2)
        fine = _through(self.fine, self.stem(features) + self.place, view.context)
        coarse = _through(self.coarse, self.down(fine), view.context)
        bottom = _through(self.bottom, self.further(coarse), view.context)
        coarse = _through(self.coarse_again, coarse + self.back(bottom), view.context)
        fine = _through(self.fine_again, fine + self.up(coarse), view.context)
        return linear + view.posterior * F.pixel_shuffle(self.head(F.relu(fine)), 2).flatten(1)


class _Block(nn.Module):
    """Residual block whose features are scaled and shifted by what is known of the channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.told = nn.Linear(BANDS, 2 * width)
        self.last = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, features: Tensor, context: Tensor) -> Tensor:
        """Compute features of the same shape."""
        scale, shift = self.told(context)[:, :, None, None].chunk(2, dim=1)
        return features + self.last(F.relu(self.first(F.relu(features)) * (1 + scale) + shift))


def _through(blocks: nn.ModuleList, features: Tensor, context: Tensor) -> Tensor:
    """Pass features through some blocks."""
    for block in blocks:
        features = block(features, context)
    return features


def band_of(height: int, width: int) -> Int[np.ndarray, "height width"]:
    """Find the band of frequencies of each cosine coefficient of an image."""
    frequency = np.maximum(np.arange(height)[:, None] / height, np.arange(width) / width)
    return np.digitize(frequency, _EDGES)


def in_bands(
    columns: Float[np.ndarray, "d k"], image_shape: tuple[int, int, int]
) -> Float[np.ndarray, "bands k"]:
    """Compute the mean square of images' cosine coefficients in each band, one image a column."""
    coefficients = dctn(columns.reshape(*image_shape, -1), axes=(1, 2), norm="ortho")
    band, squares = band_of(*image_shape[1:]), np.square(coefficients)
    return np.stack([squares[:, band == number].mean(axis=(0, 1)) for number in range(BANDS)])


def relative(
    left: Float[np.ndarray, " bands"], variances: Float[np.ndarray, " bands"]
) -> Float[np.ndarray, " bands"]:
    """Compute the logarithm of the part of the variance in each band that stays unknown, 0 without any."""
    return np.log(np.maximum(left, _TINY) / np.maximum(variances, _TINY))
