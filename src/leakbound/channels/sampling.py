"""Noise from a calibrated channel: float32, on any device, every draw from the caller's generator.

Rounding in float32. Standard deviations along the pixels are rounded up. Along principal directions the factor is
rounded to nearest, which changes a noise variance by at most about 1e-7 of itself. A channel with a gain computes the
shrunk image before any noise, and the rounding of that differs from record to record in all directions, also in those
that pass nothing and have no noise; it is the same at each use and would be a fingerprint. So its noise gets a dither:
independent noise on every pixel, with 1e-3 of the largest standard deviation along the axes. It adds d millionths of
the largest variance, comes after the release and so takes no capacity, and buries the residue.

What is outside the guarantee. The capacity is that of real-valued Gaussian noise; this noise is pseudo-random, from a
generator whose seed must stay unknown, and in float32. Which floating-point values a noisy sum can take depends on the
image, so the low-order bits tell more than the theory counts (Mironov 2012, for the Laplace mechanism); nothing here
guards against an attacker who reads them.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from leakbound.channels.channel import Channel

_DITHER = 1e-3  # standard deviation of the dither of a channel with a gain, over the largest of its noise


class ChannelSampler:
    """Adds the noise of one channel to images.

    Along the pixels a draw costs one multiplication per value; along principal directions one product with a (r, d)
    factor for the r directions with noise, about 14 ms for a batch of 64 at d = 3,072 on one CPU core and half as much
    per image in blocks of 512.

    Args:
        channel: A calibrated channel.
        image_shape: (colors, height, width); images are flattened in this order, as the moments were.
        device: Where images and noise live.

    Raises:
        ValueError: If ``image_shape`` does not fit the channel, or the channel passes nothing (κ = 0), so that its
            noise is infinite.
    """

    def __init__(self, channel: Channel, image_shape: tuple[int, int, int], device: str | torch.device = "cpu") -> None:
        if math.prod(image_shape) != channel.dimension:
            raise ValueError(
                f"images of shape {image_shape} have {math.prod(image_shape)} values, the channel was calibrated for "
                f"{channel.dimension}; use the channel of this dataset"
            )
        if not np.isfinite(channel.variances).all():
            raise ValueError(f"channel {channel.shape}: capacity {channel.capacity} needs infinite noise; raise it")
        self.channel = channel
        self.image_shape = image_shape
        self.device = torch.device(device)
        self._factor: Tensor | None = None
        self._shrink: tuple[Tensor, Tensor, Tensor] | None = None
        self._dither = 0.0
        deviations = np.sqrt(channel.variances)
        self._deviations = self._upload(_round_up(deviations))
        if channel.basis is not None:
            noisy = deviations > 0
            self._factor = self._upload(deviations[noisy, None] * channel.basis[:, noisy].T)
        if channel.gain is not None and channel.mean is not None:
            self._dither = _DITHER * float(deviations.max())
            passing = channel.gain > 0
            axes = np.eye(channel.dimension)[:, passing] if channel.basis is None else channel.basis[:, passing]
            self._shrink = (
                self._upload(channel.mean),
                self._upload(axes * channel.gain[passing]),
                self._upload(np.ascontiguousarray(axes.T)),
            )

    def noise(self, count: int, generator: torch.Generator) -> Float[Tensor, "count d"]:
        """Independent draws of ξ ~ N(0, Σ_ξ), float32, pixels flattened in the order (color, row, column).

        With a gain the dither described above is added to Σ_ξ.

        Args:
            count: Number of draws, one per image.
            generator: Source of randomness, on the sampler's device.
        """
        if self._factor is None:
            noise = self._normal(count, self.channel.dimension, generator).mul_(self._deviations)
        else:
            noise = self._normal(count, len(self._factor), generator) @ self._factor
        if self._dither:
            noise += self._normal(count, self.channel.dimension, generator).mul_(self._dither)
        return noise

    def combine(
        self, images: Float[Tensor, "*lead colors height width"], noise: Float[Tensor, "*rows d"]
    ) -> Float[Tensor, "*lead colors height width"]:
        """Released images for given noise: D + ξ, or m + A(D − m) + ξ for a channel with a gain.

        Args:
            images: (..., colors, height, width), float32; leading axes are free, e.g. (batch,) or (slots, batch).
            noise: One row of d values per image: (..., d) or (images, d).

        Returns:
            As many images; not clipped.

        Raises:
            ValueError: If the images have another shape than the channel's.
        """
        if tuple(images.shape[-3:]) != self.image_shape:
            raise ValueError(f"images end in {tuple(images.shape[-3:])}, the channel expects {self.image_shape}")
        signal = images.reshape(-1, self.channel.dimension)
        if self._shrink is not None:
            mean, weighted, axes = self._shrink
            signal = torch.addmm(mean, (signal - mean) @ weighted, axes)
        return (signal + noise.reshape(signal.shape)).reshape(images.shape)

    def apply(
        self, images: Float[Tensor, "*lead colors height width"], generator: torch.Generator
    ) -> Float[Tensor, "*lead colors height width"]:
        """One use of the channel for every image, with fresh noise.

        Args:
            images: (..., colors, height, width), float32, on the sampler's device.
            generator: Source of randomness, on the sampler's device.

        Returns:
            As many images; not clipped.

        Raises:
            ValueError: If the images have another shape than the channel's.
        """
        return self.combine(images, self.noise(math.prod(images.shape[:-3]), generator))

    def freeze(
        self, images: Float[Tensor, "n colors height width"], generator: torch.Generator, chunk: int = 1024
    ) -> Float[Tensor, "n colors height width"]:
        """The one noisy copy of every record that frozen noise uses in all epochs: one use of the channel in total.

        Args:
            images: All records, float32, on the sampler's device.
            generator: Source of randomness, on the sampler's device.
            chunk: Records per product; bounds the memory beyond the result.
        """
        return torch.cat([self.apply(part, generator) for part in images.split(chunk)])

    def _normal(self, count: int, width: int, generator: torch.Generator) -> Tensor:
        """Standard normal draws (count, width)."""
        return torch.randn(count, width, generator=generator, device=self.device, dtype=torch.float32)

    def _upload(self, array: np.ndarray) -> Tensor:
        """Float32 tensor on the sampler's device."""
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)).to(self.device)


def _round_up(values: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Float32 values that are not below the given ones."""
    rounded = values.astype(np.float32)
    return np.where(rounded < values, np.nextafter(rounded, np.float32(np.inf)), rounded)
