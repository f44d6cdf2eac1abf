"""Sampling of noise from a calibrated channel, on any device, from a source that the caller passes.

Released images are float32.

Rounding in float32, for seeded noise. Standard deviations along the pixels are rounded up. Along principal
directions the factor is rounded to nearest. This changes a noise variance along one of them by at most about
1e-7 of itself, and along any direction of CIFAR-10 by 4e-5, with a triangular factor or without. A channel
with a gain computes the shrunk image before it adds noise. The rounding of the shrunk image differs from
record to record in all directions, also in those that have no noise. It is the same at each use and would be
a fingerprint. The noise therefore gets a dither: independent noise on every pixel, with 1e-3 of the largest
standard deviation along the axes. The dither adds d millionths of the largest variance and hides this
rounding. It is added after the release, so it does not raise the capacity.

Grid, for secure noise. Image and noise are added in float64. Each pixel is then rounded to a grid whose
spacing is at most a sixteenth of the standard deviation of its own noise (:mod:`leakbound.randomness.grid`).
The rounding is post-processing of the ideal release, whatever the axes of the noise, and hides the
floating-point sum. The dither
stays: with it, every pixel of a channel with a gain has noise that crosses the boundaries of the grid.

Limits. The capacity is that of real-valued Gaussian noise. Seeded noise is pseudo-random float32 from a
generator. Its seed must stay secret, and on a CPU it is one of only 2³². The image determines which
floating-point values a noisy sum can take, so the low-order bits reveal more than the theory counts (Mironov
2012). Use secure noise, on a grid, against an attacker who knows seeds or reads low-order bits. docs/noise.md
lists what remains.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy import linalg
from torch import Tensor

from leakbound.channels.channel import GaussianChannel
from leakbound.channels.directions import Directions
from leakbound.randomness.grid import grid_spacing, to_grid
from leakbound.randomness.sources import NoiseSource, StackedNoise, as_source

_CHUNK = 3 * 2**14  # values that are in float64 at a time, which stay in a core's cache
_DITHER = 1e-3  # standard deviation of the dither of a channel with a gain, over the largest of its noise


class ChannelSampler:
    """Adds the noise of one channel to images.

    Along the pixels a draw costs one multiplication per value. Along principal directions it costs one
    product with a (r, d) factor for the r directions with noise, or two products with the records of
    :class:`~leakbound.channels.directions.Directions`. If all d directions have noise, every R with RᵀR = Σ_ξ
    gives the same distribution. ``many_draws`` then takes the upper triangular R, whose products need half of
    the operations.

    Methods take float32 images (..., colors, height, width) with any leading axes, such as (batch,) or
    (slots, batch), and a source of randomness or a generator, all on the sampler's device. They raise a
    ``ValueError`` for images of another shape than the channel's. They release float32 images of the same
    shape, which are not clipped.

    Args:
        channel: A calibrated channel.
        image_shape: (colors, height, width). Images are flattened in this order, like the moments.
        device: Device of images and noise.
        on_grid: Release images on a grid, as secure noise requires.
        many_draws: Spend up to seconds (d = 3,072) on a triangular factor, which makes products on a CPU
            faster. The distribution of the noise is the same. Equal generators draw other noise.

    Attributes:
        spacing: (d,), spacing of the grid of each pixel, float64, 0 where nothing is rounded. None without a
            grid.

    Raises:
        ValueError: If ``image_shape`` does not fit the channel, or if the noise is infinite (κ = 0).
    """

    def __init__(
        self,
        channel: GaussianChannel,
        image_shape: tuple[int, int, int],
        device: str | torch.device = "cpu",
        *,
        on_grid: bool = False,
        many_draws: bool = False,
    ) -> None:
        if math.prod(image_shape) != channel.dimension:
            raise ValueError(
                f"images of shape {image_shape} have {math.prod(image_shape)} values, the channel was calibrated for "
                f"{channel.dimension}; use the channel of this dataset"
            )
        if not np.isfinite(channel.variances).all():
            raise ValueError(
                f"channel {channel.shape}: capacity {channel.capacity} needs infinite noise; give a larger capacity"
            )
        self.channel = channel
        self.image_shape = image_shape
        self.device = torch.device(device)
        self._dtype = torch.float64 if on_grid else torch.float32
        self._factor: Tensor | None = None
        self._triangle: np.ndarray | None = None
        self._shrink: tuple[Tensor, Tensor, Tensor] | None = None
        self._dither = 0.0
        deviations = np.sqrt(channel.variances)
        self._deviations = self._upload(deviations if on_grid else _round_up(deviations))
        thin = isinstance(channel.basis, Directions)
        if channel.basis is not None and not thin:
            noisy = deviations > 0
            factor = deviations[noisy, None] * channel.basis[:, noisy].T
            if many_draws and noisy.all() and self.device.type == "cpu":
                self._triangle = _triangular(factor).astype(np.float64 if on_grid else np.float32, order="F")
            else:
                self._factor = self._upload(factor)
        if channel.gain is not None and channel.mean is not None:
            self._dither = _DITHER * float(deviations.max())
            if not thin:
                self._shrink = self._shrinkage(channel.mean, channel.gain)
        self.spacing = (
            self._upload(grid_spacing(np.sqrt(channel.pixel_variances() + self._dither**2)))
            if on_grid
            else None
        )
        self._rounded = None if self.spacing is None or bool((self.spacing > 0).all()) else self.spacing > 0

    def _shrinkage(self, mean: np.ndarray, gain: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean and the two factors with which a gain shrinks images along its axes."""
        passing = gain > 0
        basis = self.channel.basis
        axes = np.eye(self.channel.dimension)[:, passing] if basis is None else basis[:, passing]
        shrunk = self._upload(axes * gain[passing])
        return self._upload(mean), shrunk, self._upload(np.ascontiguousarray(axes.T))

    def noise(self, count: int, source: NoiseSource | torch.Generator) -> Float[Tensor, "count d"]:
        """Draw independent ξ ~ N(0, Σ_ξ), pixels flattened in the order (color, row, column).

        With a gain the dither described above is added to Σ_ξ. Noise is float32, or float64 for a release on
        a grid.

        Raises:
            ValueError: If the source is secure, but the sampler does not release on a grid.
        """
        drawn = as_source(source)
        self._check(drawn.secure)
        return self._shaped(lambda width: drawn.normal((count, width), self._dtype))

    def stacked_noise(self, count: int, sources: Sequence[NoiseSource]) -> Float[Tensor, "slots count d"]:
        """Draw :meth:`noise` for several slots.

        On a GPU there is one draw from each source, and one product for all slots. On a CPU the noise of each
        slot has the same bytes as without the others, which products for all slots would not have. Errors are
        those of :meth:`noise`.
        """
        if self.device.type == "cpu" and self.channel.basis is not None:
            drawn = [self.noise(count, source) for source in sources]
            return drawn[0].unsqueeze(0) if len(drawn) == 1 else torch.stack(drawn)
        stacked = StackedNoise(sources)
        self._check(stacked.secure)
        return self._shaped(lambda width: stacked.normal((len(sources), count, width), self._dtype))

    def _check(self, secure: bool) -> None:
        """Refuse secure noise without a grid."""
        if secure and self.spacing is None:
            raise ValueError("secure noise needs a grid: make the sampler with on_grid=True")

    def _shaped(self, normal: Callable[[int], Tensor]) -> Tensor:
        """Transform standard normal numbers (..., width) into noise (..., d)."""
        if self._triangle is not None:
            noise = _times_triangular(normal(self.channel.dimension), self._triangle)
        elif self._factor is not None:
            noise = normal(len(self._factor)) @ self._factor
        elif isinstance(self.channel.basis, Directions):
            noise = self._along(normal(self.channel.dimension), np.sqrt(self.channel.variances))
        else:
            noise = normal(self.channel.dimension).mul_(self._deviations)
        if self._dither:
            noise += normal(self.channel.dimension).mul_(self._dither)
        return noise

    def signal(
        self, images: Float[Tensor, "*lead colors height width"]
    ) -> Float[Tensor, "*lead colors height width"]:
        """Return images before their noise: unchanged, or m + A(D − m) with a gain, in float64 on a grid."""
        if tuple(images.shape[-3:]) != self.image_shape:
            raise ValueError(
                f"images end in {tuple(images.shape[-3:])}, the channel expects {self.image_shape}"
            )
        channel = self.channel
        if isinstance(channel.basis, Directions) and channel.gain is not None and channel.mean is not None:
            flat = images.reshape(-1, channel.dimension).to(self._dtype)
            centre = self._upload(channel.mean)
            return (centre + self._along(flat - centre, channel.gain)).reshape(images.shape)
        if self._shrink is None:
            return images
        mean, weighted, axes = self._shrink
        flat = images.reshape(-1, self.channel.dimension).to(self._dtype)
        return torch.addmm(mean, (flat - mean) @ weighted, axes).reshape(images.shape)

    def release(
        self,
        signal: Float[Tensor, "*lead colors height width"],
        noise: Float[Tensor, "*rows d"],
        out: Float[Tensor, "*lead colors height width"] | None = None,
    ) -> Float[Tensor, "*lead colors height width"]:
        """Add noise to the signal, one row of d values for each image, and round to the grid if there is one.

        Args:
            signal: Result of :meth:`signal`.
            noise: Result of :meth:`noise`.
            out: Float32 array for the result, contiguous if there is a grid, e.g. the signal itself. By
                default new memory.
        """
        if self.spacing is None:
            return torch.add(signal, noise.reshape(signal.shape), out=out)
        flat = signal.reshape(-1, self.channel.dimension)
        released = torch.empty(flat.shape, device=flat.device) if out is None else out.view(flat.shape)
        chunks = [
            values.split(max(1, _CHUNK // flat.shape[1]))
            for values in (flat, noise.reshape(flat.shape), released)
        ]
        for clean, drawn, target in zip(*chunks, strict=True):
            exact = clean.double().add_(drawn) if clean.dtype == torch.float32 else clean + drawn
            if self._rounded is None:
                target.copy_(to_grid(exact, self.spacing))
            else:
                target.copy_(torch.where(self._rounded, to_grid(exact.clone(), self.spacing), exact))
        return released.view(signal.shape)

    def apply(
        self, images: Float[Tensor, "*lead colors height width"], source: NoiseSource | torch.Generator
    ) -> Float[Tensor, "*lead colors height width"]:
        """Use the channel once for every image, with fresh noise: D + ξ, or m + A(D − m) + ξ with a gain."""
        return self.release(self.signal(images), self.noise(math.prod(images.shape[:-3]), source))

    def freeze(
        self,
        images: Float[Tensor, "n colors height width"],
        source: NoiseSource | torch.Generator,
        chunk: int = 1024,
    ) -> Float[Tensor, "n colors height width"]:
        """Make the noisy copy of every record that frozen noise keeps for all epochs: one use of the channel.

        Args:
            images: Records, on the sampler's device.
            source: Source of the noise, or a generator.
            chunk: Records that are processed at a time, which limits the memory besides the result.
        """
        return torch.cat([self.apply(part, source) for part in images.split(chunk)])

    def _along(
        self, rows: Float[Tensor, "*lead d"], values: Float[np.ndarray, " d"]
    ) -> Float[Tensor, "*lead d"]:
        """Multiply rows by a value along each of the channel's axes, which are never formed."""
        flat = rows.reshape(-1, rows.shape[-1]).double().cpu().numpy()
        product = self.channel.basis.scaled(flat, values)
        return torch.from_numpy(product).to(self.device, self._dtype).reshape(rows.shape)

    def _upload(self, array: np.ndarray) -> Tensor:
        """Move an array to the sampler's device, as a tensor of the type that it computes in."""
        kind = np.float32 if self._dtype == torch.float32 else np.float64
        return torch.from_numpy(np.array(array, dtype=kind, order="C")).to(self.device)


def _triangular(factor: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
    """Compute the upper triangular R with RᵀR = FᵀF. Its diagonal is not negative, so it is unique.

    Reflections keep directions of little noise accurate, which FᵀF would not.
    """
    triangle = linalg.qr(factor, mode="r", overwrite_a=True, check_finite=False)[0]
    triangle[np.diag(triangle) < 0] *= -1
    return triangle


def _times_triangular(
    normal: Float[Tensor, "count d"], triangle: Float[np.ndarray, "d d"]
) -> Float[Tensor, "count d"]:
    """Multiply rows by an upper triangular factor, a Fortran array of the same type, in place."""
    (multiply,) = linalg.get_blas_funcs(("trmm",), (triangle,))
    return torch.from_numpy(multiply(1.0, triangle, normal.numpy().T, trans_a=1, overwrite_b=1).T)


def _round_up(values: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Return float32 values that are not below the given ones."""
    rounded = values.astype(np.float32)
    return np.where(rounded < values, np.nextafter(rounded, np.float32(np.inf)), rounded)
