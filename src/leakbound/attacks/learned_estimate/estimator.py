"""Learned estimate of images from their noisy versions, by an attacker who knows the channel.

The best linear estimate is the posterior mean of Gaussian images only. A network that was trained on the
attacker's own records through the simulated channel
(:mod:`leakbound.attacks.learned_estimate.estimator_training`) corrects it where images are not Gaussian.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from scipy import linalg
from scipy.fft import dctn

from leakbound.attacks.learned_estimate.denoiser import (
    BANDS,
    ChannelView,
    Denoiser,
    band_of,
    in_bands,
    relative,
)
from leakbound.attacks.search_images import LARGEST_PIXEL
from leakbound.channels.channel import GaussianChannel
from leakbound.channels.covariance import Moments, stored_array
from leakbound.channels.estimation import linear_estimate

_CHUNK = 256  # images that the network sees at once
_SAME = 1e-3  # relative difference up to which two profiles of noise are one
_REACH = 1.1  # factor of the variance left unknown by which a channel may lie beyond the trained ones
_PREFIX = "network."
_WIDEST = 512  # channels of a network that is read


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
        network: Parameters of the :class:`~leakbound.attacks.learned_estimate.denoiser.Denoiser`, float32.
        families: Channels that it was trained on.
    """

    image_shape: tuple[int, int, int]
    network: Mapping[str, np.ndarray]
    families: tuple[Family, ...]
    _views: dict[tuple[int, int], tuple[GaussianChannel, Moments, ChannelView, float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def estimate(
        self, released: Float[np.ndarray, "n colors height width"], channel: GaussianChannel, moments: Moments
    ) -> Float[np.ndarray, "n colors height width"]:
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
                network(estimates, noisy, view.chosen(torch.zeros(len(noisy), dtype=torch.int64)))
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
    basis, noise, signal = channel.basis, channel.variances, moments.covariance
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
