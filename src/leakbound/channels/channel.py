"""A data spectrum, a channel calibrated from it, and the best linear estimate of records behind the channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import linalg

from leakbound.accounting.gaussian import clip_eigenvalues
from leakbound.accounting.leakage import joint_information
from leakbound.channels.covariance import Moments, ratios_of, stored_array, unshrunk
from leakbound.channels.directions import Directions

_NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class Spectrum:
    """Facts about the data from which a shape is calibrated. One spectrum serves all capacities.

    Attributes:
        shape: Name of the shape that it was computed for.
        eigenvalues: (d,), μ, generalised eigenvalues of (data covariance, shape M), descending, each >= 0.
        total_variance: Trace of the data covariance, squared pixel units.
        mean: (d,), mean record, in pixel units.
        data_eigenvalues: (d,), λ, descending: variances of the data along ``basis`` or, without a basis,
            eigenvalues of the data covariance. None if the shape does not need them.
        basis: (d, d), principal directions of the data as orthonormal columns, or
            :class:`~leakbound.channels.directions.Directions`. None if the axes of the noise are the pixels.
        weights: (d,), β > 0, relative noise variance of each pixel, for the personalized shapes.
        bound: Arrays of the published bound (Tan et al. 2024, Theorem 3), for ``personalized_printed`` only.
    """

    shape: str
    eigenvalues: Float[np.ndarray, " d"]
    total_variance: float
    mean: Float[np.ndarray, " d"]
    data_eigenvalues: Float[np.ndarray, " d"] | None = None
    basis: Any = None
    weights: Float[np.ndarray, " d"] | None = None
    bound: Mapping[str, Float[np.ndarray, " d"]] = field(default_factory=dict)

    @property
    def dimension(self) -> int:
        """d, number of pixels times colors."""
        return len(self.eigenvalues)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return named arrays for storage, including the basis."""
        optional = {"data_eigenvalues": self.data_eigenvalues, "basis": self.basis, "weights": self.weights}
        return {
            "eigenvalues": self.eigenvalues,
            "mean": self.mean,
            "total_variance": np.array([self.total_variance]),
            **{name: array for name, array in optional.items() if array is not None},
            **{f"bound_{name}": array for name, array in self.bound.items()},
        }

    def metadata(self) -> dict[str, str]:
        """Return strings for storage with the arrays."""
        return {"shape": self.shape}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> Spectrum:
        """Restore a spectrum from the arrays and strings of :meth:`arrays` and :meth:`metadata`.

        Raises:
            KeyError: If an array or string is missing.
            ValueError: If an array is of another type or shape.
        """
        size = arrays["eigenvalues"].size
        vectors = sorted(name for name in arrays if name not in ("basis", "total_variance"))
        values = {name: stored_array(arrays, name, (size,)) for name in vectors}
        return cls(
            shape=metadata["shape"],
            eigenvalues=values["eigenvalues"],
            total_variance=float(stored_array(arrays, "total_variance", (1,))[0]),
            mean=values["mean"],
            data_eigenvalues=values.get("data_eigenvalues"),
            basis=stored_array(arrays, "basis", (size, size)) if "basis" in arrays else None,
            weights=values.get("weights"),
            bound={
                name.removeprefix("bound_"): array
                for name, array in values.items()
                if name.startswith("bound_")
            },
        )


@dataclass(frozen=True)
class GaussianChannel:
    """A calibrated channel D̃ = D + ξ or, with a gain, D̃ = m + A(D − m) + ξ, with independent Gaussian ξ.

    Attributes:
        shape: Name of its shape.
        capacity: κ, nats per use, that it was calibrated to.
        variances: (d,), noise variance along each axis, squared pixel units.
        gain: (d,), factor along each axis in [0, 1], or None for 1 everywhere.
        mean: (d,), m, pixel units, given if and only if there is a gain.
        basis: (d, d), axes as orthonormal columns, or :class:`~leakbound.channels.directions.Directions`,
            with equal values along all axes beyond their columns. None if the axes are the pixels.

    Raises:
        ValueError: If a variance is negative or NaN, or a gain is given without a mean.
    """

    shape: str
    capacity: float
    variances: Float[np.ndarray, " d"]
    gain: Float[np.ndarray, " d"] | None = None
    mean: Float[np.ndarray, " d"] | None = None
    basis: Any = None

    def __post_init__(self) -> None:
        """Check that the noise can be sampled."""
        if not np.all(self.variances >= 0):
            raise ValueError(f"channel {self.shape}: noise variances must be >= 0")
        if (self.gain is None) != (self.mean is None):
            raise ValueError(f"channel {self.shape}: a gain shrinks towards a mean, so give both or neither")

    @property
    def dimension(self) -> int:
        """d, number of pixels times colors."""
        return len(self.variances)

    @property
    def noise_power(self) -> float:
        """E‖ξ‖², total noise variance."""
        return float(self.variances.sum())

    def pixel_variances(self) -> Float[np.ndarray, " d"]:
        """Noise variance of each pixel."""
        if isinstance(self.basis, Directions):
            return self.basis.diagonal(self.variances)
        return self.variances if self.basis is None else np.square(self.basis) @ self.variances

    def noise_covariance(self) -> Float[np.ndarray, "d d"]:
        """Covariance Σ_ξ of the noise, squared pixel units."""
        if isinstance(self.basis, Directions):
            return self.basis.scaled(np.eye(self.dimension), self.variances)
        if self.basis is None:
            return np.diag(self.variances)
        covariance: Float[np.ndarray, "d d"] = (self.basis * self.variances) @ self.basis.T
        return covariance

    def arrays(self) -> dict[str, np.ndarray]:
        """Return named arrays for storage, without the basis, which is in the file of the spectrum."""
        optional = {"gain": self.gain, "mean": self.mean}
        return {
            "variances": self.variances,
            **{name: array for name, array in optional.items() if array is not None},
        }

    def metadata(self) -> dict[str, str]:
        """Return strings for storage with the arrays. Floats keep every digit."""
        return {
            "shape": self.shape,
            "capacity": repr(float(self.capacity)),
            "axes": "pixels" if self.basis is None else "basis",
        }

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, np.ndarray],
        metadata: Mapping[str, str],
        basis: Float[np.ndarray, "d d"] | None = None,
    ) -> GaussianChannel:
        """Restore a channel from :meth:`arrays`, :meth:`metadata` and the basis of its spectrum.

        Raises:
            KeyError: If an array or string is missing.
            ValueError: If an array is of another type or shape, or if the axes of the stored channel are
                principal directions and no basis of its size is given. A channel along the pixels ignores a
                basis.
        """
        size = arrays["variances"].size
        variances = stored_array(arrays, "variances", (size,))
        gain, mean = (
            stored_array(arrays, name, (size,)) if name in arrays else None for name in ("gain", "mean")
        )
        if metadata["axes"] == "pixels":
            basis = None
        elif basis is None or basis.shape != (len(variances),) * 2:
            raise ValueError(
                f"channel {metadata['shape']}: its {len(variances)} axes are those of its spectrum; "
                "pass the basis of the spectrum that it was calibrated from"
            )
        return cls(metadata["shape"], float(metadata["capacity"]), variances, gain, mean, basis)


def signal_to_noise(channel: GaussianChannel, source: Spectrum | Moments) -> Float[np.ndarray, " d"]:
    """Compute the variance ratios of signal and noise along the axes that decouple both.

    The capacity is ½ Σ ln(1 + ratio). With a spectrum the ratios follow from its eigenvalues. With moments
    they are computed as generalised eigenvalues of (covariance after the gain, noise).

    Args:
        channel: A calibrated channel. Only its stored noise is used, not the capacity that it states.
        source: Spectrum that the channel was calibrated from, or moments of these or other records.

    Returns:
        (d,) ratios in [0, ∞].

    Raises:
        ValueError: If dimensions or shapes disagree.
    """
    if isinstance(source, Moments):
        bare, scaled = _scaled(channel, source)
        # Rounding, divided by the noise of directions without variance, can be below 0 by more than rounding.
        return np.concatenate([bare, np.maximum(linalg.eigvalsh(scaled), 0.0)[::-1]]) if scaled.size else bare
    _check_dimension(channel, source)
    if source.shape != channel.shape:
        raise ValueError(f"the spectrum is of shape {source.shape!r}, the channel of shape {channel.shape!r}")
    noise = channel.variances
    if channel.basis is not None:
        if source.data_eigenvalues is None:
            raise ValueError(
                f"the spectrum of shape {source.shape!r} holds no variances along principal directions"
            )
        if channel.gain is not None:
            return ratios_of(channel.gain**2 * source.eigenvalues, noise)
        return ratios_of(source.data_eigenvalues, noise)
    return ratios_of(source.eigenvalues, noise if source.weights is None else noise / source.weights)


def _check_dimension(channel: GaussianChannel, source: Spectrum | Moments) -> None:
    """Check that the channel and the data have the same dimension."""
    if source.dimension != channel.dimension:
        raise ValueError(f"the channel has {channel.dimension} axes, the data {source.dimension}")


def _scaled(
    channel: GaussianChannel, moments: Moments
) -> tuple[Float[np.ndarray, " bare"], Float[np.ndarray, "axes axes"]]:
    """Compute A Σ Aᵀ over the noise on the axes with finite noise.

    Axes without noise have the ratio 0 or ∞. Axes with infinite noise have the ratio 0.
    """
    _check_dimension(channel, moments)
    basis = channel.basis
    noise = channel.variances
    if isinstance(basis, Directions):
        raise ValueError(
            "the axes of this channel are never formed: pass the spectrum that it was calibrated from"
        )
    covariance = moments.covariance
    if channel.gain is not None and moments.shrinkage:  # as the shape with a gain is calibrated
        variances, axes = moments.principal()
        covariance = axes * unshrunk(variances, moments) @ axes.T
    signal = covariance if basis is None else basis.T @ covariance @ basis
    if channel.gain is not None:
        signal = channel.gain[:, None] * signal * channel.gain
    signal = 0.5 * (signal + signal.T)  # a product rounds the two halves differently
    variances = clip_eigenvalues(np.diag(signal))
    noisy = (noise > 0) & np.isfinite(noise)
    deviations = np.sqrt(noise[noisy])
    return ratios_of(variances[~noisy], noise[~noisy]), signal[np.ix_(noisy, noisy)] / np.outer(
        deviations, deviations
    )


def channel_capacity(channel: GaussianChannel, source: Spectrum | Moments) -> float:
    """Compute the capacity of a stored channel again: ½ ln det(I + Σ_D Σ_ξ⁻¹), in nats per use.

    Args:
        channel: A calibrated channel. The capacity that it states is not used.
        source: Spectrum that it was calibrated from, or moments of these or other records. Moments are slower
            and independent of the spectrum.

    Raises:
        ValueError: If dimensions or shapes disagree.
    """
    return joint_information(signal_to_noise(channel, source), 1)


def linear_estimate(
    released: Float[np.ndarray, "n colors height width"], channel: GaussianChannel, moments: Moments
) -> Float[np.ndarray, "n colors height width"]:
    """Estimate records from their noisy versions: E[D] + Cov(D, D̃) Cov(D̃)⁻¹ (D̃ - E[D̃]).

    This is the best linear estimate. For Gaussian data it is the posterior mean, and no attack on anything
    computed from D̃ does better. For any data its mean squared error is Σ λσ/(λ + σ) with additive noise
    along the principal axes.

    Args:
        released: Noisy records D̃.
        channel: Channel that released them.
        moments: Mean and covariance of the records.

    Returns:
        Estimates, float32, not clipped to [-1, 1].

    Raises:
        ValueError: If channel, moments and images differ in dimension.
    """
    if not channel.dimension == moments.dimension == released[0].size:
        raise ValueError(
            f"images have {released[0].size} values, the channel {channel.dimension}, the moments {moments.dimension}; "
            "take all three from one dataset"
        )
    basis = channel.basis
    mean = moments.mean
    gain = np.ones(len(mean)) if channel.gain is None else channel.gain
    centre = mean if channel.mean is None else channel.mean
    signal = moments.covariance if basis is None else basis.T @ moments.covariance @ basis
    total = gain[:, None] * signal * gain + np.diag(channel.variances)
    # Axes in which nothing varies tell nothing, and would make Cov(D̃) singular.
    live = np.diag(total) > _NEGLIGIBLE * np.diag(total).max()
    expected = _along(centre[None], basis) + gain * _along((mean - centre)[None], basis)
    observed = _along(released.reshape(len(released), -1).astype(np.float64), basis) - expected
    factor = linalg.cho_factor(total[np.ix_(live, live)], lower=True)
    weights = linalg.cho_solve(factor, observed[:, live].T).T
    estimate = (weights * gain[live]) @ signal[live]
    pixels = estimate if basis is None else estimate @ basis.T
    return (mean + pixels).reshape(released.shape).astype(np.float32)


def _along(
    records: Float[np.ndarray, "n d"], basis: Float[np.ndarray, "d d"] | None
) -> Float[np.ndarray, "n d"]:
    """Compute coordinates along the columns of ``basis``, or return the pixels themselves without a basis."""
    return records if basis is None else records @ basis
