"""Learned estimate of images from their noisy versions, by an attacker who knows the channel.

The best linear estimate is the posterior mean of Gaussian images only. A network that was trained on the
attacker's own records through the simulated channel
(:mod:`leakbound_lab.attacks.learned_estimate.estimator_training`) corrects it where images are not Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from scipy import linalg
from scipy.fft import dctn
from torch import Tensor, nn

from leakbound.channels.channel import GaussianChannel, linear_estimate
from leakbound.channels.covariance import Moments, stored_array
from leakbound_lab.attacks.metrics import Pictures
from leakbound_lab.attacks.search_images import LARGEST_PIXEL

_MULTIPLE = 8  # of which the sides of images are, because they are halved three times
_EDGES = (0.07, 0.16, 0.35)  # ends of the bands of frequencies, as parts of the highest one
BANDS = len(_EDGES) + 1
"""Bands of frequencies in which a channel is described."""
_TINY = 1e-12
_CHUNK = 256  # images that the network sees at once
_SAME = 1e-3  # relative difference up to which two profiles of noise are one
_REACH = 1.1  # factor of the variance left unknown by which a channel may lie beyond the trained ones
_PREFIX = "network."
_WIDEST = 512  # channels of a network that is read


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

    def part(self, rows: Tensor) -> ChannelView:
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
    band = band_of(*image_shape[1:])
    squares = np.square(coefficients)
    return np.stack([squares[:, band == number].mean(axis=(0, 1)) for number in range(BANDS)])


def relative(
    left: Float[np.ndarray, " bands"], variances: Float[np.ndarray, " bands"]
) -> Float[np.ndarray, " bands"]:
    """Compute the logarithm of the part of the variance in each band that stays unknown, 0 without any."""
    return np.log(np.maximum(left, _TINY) / np.maximum(variances, _TINY))


@dataclass(frozen=True)
class Family:
    """Channels of one shape that an estimator was trained on.

    Attributes:
        shape: Name of the shape.
        profile: (d,) noise variance on each pixel over its mean, for noise along the pixels, or None along
            other axes.
        unknown: (levels,), ascending, part of the images' variance that each of some channels leaves unknown
            to the linear estimate.
        trust: (levels,), weight in [0, 1] of the network's estimate against the linear one that was best for
            each of them on records that the network was not trained on, or 0 where the network is no better.
    """

    shape: str
    profile: Float[np.ndarray, " d"] | None
    unknown: Float[np.ndarray, " levels"]
    trust: Float[np.ndarray, " levels"]

    def holds(self, channel: GaussianChannel) -> bool:
        """Return whether a channel is one of these, whatever its level."""
        profile = profile_of(channel)
        if self.profile is None or profile is None:
            return self.profile is profile and self.shape == channel.shape
        return bool(np.allclose(profile, self.profile, rtol=_SAME, atol=0))

    def weight(self, unknown: float) -> float:
        """Return the weight of the network where this part of the variance is unknown, 0 beyond those tried."""
        if not self.unknown[0] / _REACH <= unknown <= self.unknown[-1] * _REACH:
            return 0.0
        return float(np.interp(np.log(unknown), np.log(self.unknown), self.trust))


@dataclass(frozen=True)
class Estimator:
    """Posterior mean of images given noisy ones, as one network has learned it for a dataset's channels.

    Attributes:
        image_shape: (colors, height, width).
        network: Parameters of the :class:`~leakbound_lab.attacks.learned_estimate.estimator.Denoiser`, float32.
        families: Channels that it was trained on.
    """

    image_shape: tuple[int, int, int]
    network: Mapping[str, np.ndarray]
    families: tuple[Family, ...]
    _views: dict[tuple[int, int], tuple[GaussianChannel, Moments, ChannelView, float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def estimate(self, released: Pictures, channel: GaussianChannel, moments: Moments) -> Pictures:
        """Estimate records from their noisy versions, clipped to [-1, 1].

        For channels that the network was not trained on, by shape, weights or level, it is the clipped linear
        estimate. Images are single records. The mean of several has another distribution than the network has
        learned.

        Args:
            released: Noisy records.
            channel: Channel that they came from.
            moments: Mean and covariance of the records.

        Returns:
            Estimates, float32.

        Raises:
            ValueError: If channel, moments and images differ in dimension, or the images from those of the
                training.
        """
        if released.shape[1:] != self.image_shape:
            raise ValueError(
                f"images of shape {released.shape[1:]}, the estimator was trained on {self.image_shape}"
            )
        linear = linear_estimate(released, channel, moments)
        plain = linear.clip(-LARGEST_PIXEL, LARGEST_PIXEL)
        family = next((family for family in self.families if family.holds(channel)), None)
        if family is None:
            return plain
        view, unknown = self._seen(channel, moments)
        weight = family.weight(unknown)
        if not weight:
            return plain
        network = Denoiser(self.image_shape, len(self.network["place"]), torch.Generator())
        network.load_state_dict(
            {name: torch.from_numpy(array.copy()) for name, array in self.network.items()}
        )
        flat = (torch.from_numpy(np.asarray(part, np.float32)).flatten(1) for part in (linear, released))
        chunks = zip(*(part.split(_CHUNK) for part in flat), strict=True)
        with torch.no_grad():
            parts = [
                network(estimates, noisy, view.part(torch.zeros(len(noisy), dtype=torch.int64)))
                for estimates, noisy in chunks
            ]
        learned = torch.cat(parts).clamp(-LARGEST_PIXEL, LARGEST_PIXEL).view(released.shape).numpy()
        return np.asarray(plain + weight * (learned - plain), np.float32)

    def _seen(self, channel: GaussianChannel, moments: Moments) -> tuple[ChannelView, float]:
        """View a channel, and compute the part of the variance that it leaves unknown. Slow, so kept."""
        key = (id(channel), id(moments))
        if key not in self._views:
            self._views.clear()
            self._views[key] = (channel, moments, *view_of(channel, moments, self.image_shape))
        return self._views[key][2:]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return named arrays for storage."""
        stored = {f"{_PREFIX}{name}": array for name, array in self.network.items()}
        stored["image_shape"] = np.array(self.image_shape)
        for number, family in enumerate(self.families):
            stored |= {f"{number}.unknown": family.unknown, f"{number}.trust": family.trust}
            if family.profile is not None:
                stored[f"{number}.profile"] = family.profile
        return stored

    def metadata(self) -> dict[str, str]:
        """Return strings for storage with the arrays."""
        return {"shapes": " ".join(family.shape for family in self.families)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> Estimator:
        """Make an estimator from the arrays and strings of :meth:`arrays` and :meth:`metadata`.

        Raises:
            KeyError: If an array or string is missing.
            ValueError: If an array is of another type or shape.
        """
        colors, height, width = map(int, arrays["image_shape"])
        network = {
            name.removeprefix(_PREFIX): array for name, array in arrays.items() if name.startswith(_PREFIX)
        }
        place = network["place"].shape
        if (
            min(colors, height, width) < 1
            or place[1:] != (height // 2, width // 2)
            or not 1 <= place[0] <= _WIDEST
        ):
            raise ValueError(
                f"its network of shape {place} is for other images than {colors}×{height}×{width}"
            )
        expected = Denoiser((colors, height, width), place[0], torch.Generator()).state_dict()
        shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
        if {name: array.shape for name, array in network.items() if array.dtype == np.float32} != shapes:
            raise ValueError("its network is another one")
        families = []
        for number, shape in enumerate(metadata["shapes"].split()):
            name = f"{number}.profile"
            profile = stored_array(arrays, name, (colors * height * width,)) if name in arrays else None
            levels = arrays[f"{number}.unknown"].shape
            unknown = stored_array(arrays, f"{number}.unknown", levels)
            trust = stored_array(arrays, f"{number}.trust", levels)
            families.append(Family(shape, profile, unknown, trust))
        return cls((colors, height, width), network, tuple(families))


def profile_of(channel: GaussianChannel) -> Float[np.ndarray, " d"] | None:
    """Divide the noise variance on each pixel by its mean, for noise along the pixels. Else None."""
    return None if channel.basis is not None else channel.variances / channel.variances.mean()


def view_of(
    channel: GaussianChannel, moments: Moments, image_shape: tuple[int, int, int]
) -> tuple[ChannelView, float]:
    """View a channel for Gaussian images with some moments, and compute the part of variance left unknown.

    The posterior covariance is Σ − ΣAᵀ Cov(D̃)⁻¹ AΣ. With Cov(D̃) = LLᵀ the channel reveals XᵀX, X = L⁻¹AΣ.
    """
    basis = channel.basis
    noise = channel.variances
    signal = moments.covariance
    turned = signal if basis is None else basis.T @ signal
    gain = np.ones(len(noise)) if channel.gain is None else channel.gain
    total = gain[:, None] * (turned if basis is None else turned @ basis) * gain + np.diag(noise)
    live = np.diag(total) > 1e-12 * np.diag(total).max()
    factor = linalg.cholesky(total[np.ix_(live, live)], lower=True)
    revealed = linalg.solve_triangular(factor, gain[live, None] * turned[live], lower=True).T
    prior = np.diag(signal)
    posterior = np.maximum(prior - np.square(revealed).sum(axis=1), 0.0)
    along = noise if basis is None else np.square(basis) @ noise
    before = _band_variances(signal, image_shape)
    after = before - in_bands(revealed, image_shape).sum(axis=1)
    arrays = (np.sqrt(along), np.sqrt(posterior), relative(after, before))
    view = ChannelView(*(torch.from_numpy(array.astype(np.float32))[None] for array in arrays))
    return view, float(posterior.sum() / prior.sum())


def _band_variances(
    covariance: Float[np.ndarray, "d d"], image_shape: tuple[int, int, int]
) -> Float[np.ndarray, " bands"]:
    """Compute the mean variance of the cosine coefficients in each band of frequencies."""
    turned = dctn(covariance.reshape(2 * image_shape), axes=(1, 2, 4, 5), norm="ortho")
    band = band_of(*image_shape[1:])
    variances = np.diag(turned.reshape(covariance.shape)).reshape(image_shape)
    return np.array([variances[:, band == number].mean() for number in range(BANDS)])
