"""Channel shapes: how noise of a given capacity is spread over the data's directions.

A shape decomposes the moments of the data once (:class:`Spectrum`) and is then calibrated at any capacity
(:class:`GaussianChannel`). A new shape is a class with these two functions and one line in the registry.

Directions whose variance is lost in rounding. Noise that follows the data's own variance would give a
direction with a computed variance of 0 no noise at all, and a true variance of 1e-17 then leaks without
bound. Such shapes take max(λ, 1e-12 λ_1) for λ when they spread the noise, and are still calibrated with λ
itself: the capacity is met exactly, at full rank the published closed form comes out, and at a lower rank the
exponent counts the directions that exist. The guarantee is for the computed covariance. Its rounding, about
1e-16 λ_1, limits what can be promised of directions without variance: there the noise must stay above it,
which white noise does up to about 4 nats per existing direction.
"""

import math
from dataclasses import replace
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy import linalg

from leakbound.accounting.gaussian import clip_eigenvalues
from leakbound.channels.calibration import (
    least_power_level,
    least_power_variances,
    noise_scale,
    water_filling,
)
from leakbound.channels.channel import GaussianChannel, Spectrum
from leakbound.channels.covariance import Moments
from leakbound.channels.printed_bound import innovations, printed_scale
from leakbound.registry import SHAPES

_FLOOR = 1e-12


@runtime_checkable
class Shape(Protocol):
    """Interface of a channel shape."""

    takes_weights: ClassVar[bool]

    @staticmethod
    def decompose(moments: Moments, *, weights: Float[np.ndarray, " d"] | None = None) -> Spectrum:
        """Spectrum of the data that the shape is calibrated from, computed once.

        Raises:
            ValueError: If ``weights`` are given to a shape that takes none, or are missing, not positive and
                finite, or not one per pixel where it takes some.
        """

    @staticmethod
    def calibrate(spectrum: Spectrum, capacity: float) -> GaussianChannel:
        """The channel of this shape that has the capacity."""


def shape_named(name: str) -> Shape:
    """The registered shape of a name, e.g. ``natural``.

    Raises:
        UnknownNameError: If no shape has this name.
    """
    found: Shape = SHAPES.get(name)
    return found


class Natural:
    """The same noise variance on every pixel, σI (Tan et al. 2024, Theorem 2). Needs eigenvalues only."""

    takes_weights: ClassVar[bool] = False

    @staticmethod
    def decompose(moments: Moments, *, weights: Float[np.ndarray, " d"] | None = None) -> Spectrum:
        """Eigenvalues of the data covariance."""
        _refuse_weights("natural", weights)
        eigenvalues = moments.eigenvalues()
        return Spectrum(
            "natural", eigenvalues, moments.total_variance, moments.mean, data_eigenvalues=eigenvalues
        )

    @staticmethod
    def calibrate(spectrum: Spectrum, capacity: float) -> GaussianChannel:
        """Noise σI with ½ Σ ln(1 + λ_i/σ) = κ; see :func:`~leakbound.channels.calibration.noise_scale`."""
        scale = noise_scale(spectrum.eigenvalues, capacity)
        return GaussianChannel("natural", capacity, np.full(spectrum.dimension, scale))


class _Principal:
    """A shape along the principal directions of the data, their variances descending."""

    name: ClassVar[str]
    takes_weights: ClassVar[bool] = False

    @classmethod
    def decompose(cls, moments: Moments, *, weights: Float[np.ndarray, " d"] | None = None) -> Spectrum:
        """Principal directions of the data."""
        _refuse_weights(cls.name, weights)
        variances, basis = moments.principal()
        return Spectrum(cls.name, variances, moments.total_variance, moments.mean, variances, basis)


class White(_Principal):
    """Noise in proportion to the data covariance, Σ_D / (e^{2κ/d} − 1): every direction leaks the same.

    At rank r < d the exponent counts the r directions that exist, so that κ is reached; with d it would be κ
    r/d.
    """

    name: ClassVar[str] = "white"

    @classmethod
    def decompose(cls, moments: Moments, *, weights: Float[np.ndarray, " d"] | None = None) -> Spectrum:
        """Principal directions of the data; the generalised eigenvalues are 1 in all directions above the floor."""
        spectrum = super().decompose(moments, weights=weights)
        guarded = _guarded(spectrum.eigenvalues)
        ones = np.divide(spectrum.eigenvalues, guarded, out=np.zeros_like(guarded), where=guarded > 0)
        return replace(spectrum, eigenvalues=ones)

    @staticmethod
    def calibrate(spectrum: Spectrum, capacity: float) -> GaussianChannel:
        """Noise σ·max(λ_i, 1e-12 λ_1) along principal direction i, σ the root for the generalised eigenvalues."""
        scale = noise_scale(spectrum.eigenvalues, capacity)
        guarded = _guarded(_variances(spectrum))
        return GaussianChannel(
            "white", capacity, np.where(guarded > 0, scale, 0.0) * guarded, basis=spectrum.basis
        )


class Personalized:
    """Noise variance σβ_i on pixel i with the user's weights β, calibrated exactly by generalised eigenvalues."""

    takes_weights: ClassVar[bool] = True

    @staticmethod
    def decompose(moments: Moments, *, weights: Float[np.ndarray, " d"] | None = None) -> Spectrum:
        """Eigenvalues of diag(β)^{-1/2} Σ_D diag(β)^{-1/2}."""
        if weights is None:
            raise ValueError(
                "a personalized shape needs weights, one > 0 per pixel; `box_weights` builds some"
            )
        beta = np.asarray(weights, dtype=np.float64)
        if beta.shape != moments.mean.shape:
            raise ValueError(
                f"weights: {beta.size} given, the images have {moments.dimension} pixels times colors"
            )
        if not np.all((beta > 0) & np.isfinite(beta)):
            raise ValueError(
                "weights: every one must be positive and finite; a pixel without noise would leak entirely"
            )
        root = np.sqrt(beta)
        eigenvalues = clip_eigenvalues(linalg.eigvalsh(moments.covariance / np.outer(root, root)))[
            ::-1
        ].copy()
        return Spectrum("personalized", eigenvalues, moments.total_variance, moments.mean, weights=beta)

    @staticmethod
    def calibrate(spectrum: Spectrum, capacity: float) -> GaussianChannel:
        """Noise σ diag(β) with ½ Σ ln(1 + μ_i/σ) = κ; a larger β means more noise on that pixel."""
        scale = noise_scale(spectrum.eigenvalues, capacity)
        return GaussianChannel("personalized", capacity, scale * _weights(spectrum))


class PersonalizedPrinted(Personalized):
    """The personalized shape calibrated by the published bound instead of the capacity: up to 11 dB too much noise.

    Kept to reproduce the publication. It depends on the order of the pixels and needs a covariance of full
    rank.
    """

    @staticmethod
    def decompose(moments: Moments, *, weights: Float[np.ndarray, " d"] | None = None) -> Spectrum:
        """Generalised eigenvalues, and the quantities of the published bound from one Cholesky factor.

        Raises:
            ValueError: As :class:`Shape`, and if the covariance is singular.
        """
        exact = Personalized.decompose(moments, weights=weights)
        return replace(
            exact, shape="personalized_printed", bound=innovations(moments.covariance, _weights(exact))
        )

    @staticmethod
    def calibrate(spectrum: Spectrum, capacity: float) -> GaussianChannel:
        """Noise σ diag(β) with the published upper bound on the capacity equal to κ; the true capacity is lower."""
        scale = printed_scale(spectrum.bound, capacity)
        return GaussianChannel("personalized_printed", capacity, scale * _weights(spectrum))


class LeastPower(_Principal):
    """The noise of least total variance for its capacity, between √λ_i (small κ) and constant (large κ)."""

    name: ClassVar[str] = "least_power"

    @staticmethod
    def calibrate(spectrum: Spectrum, capacity: float) -> GaussianChannel:
        """Noise of :func:`~leakbound.channels.calibration.least_power_variances` at the level that meets κ."""
        variances = _variances(spectrum)
        guarded = _guarded(variances)
        level = least_power_level(variances, capacity, guarded)
        noise = (
            np.full_like(variances, math.inf) if level == math.inf else least_power_variances(guarded, level)
        )
        return GaussianChannel("least_power", capacity, noise, basis=spectrum.basis)


class RateDistortion(_Principal):
    """The mechanism that stays nearest to the data at its capacity: it shrinks towards the mean, then adds noise."""

    name: ClassVar[str] = "rate_distortion"

    @staticmethod
    def calibrate(spectrum: Spectrum, capacity: float) -> GaussianChannel:
        """Gains and noise of :func:`~leakbound.channels.calibration.water_filling`; directions below θ pass nothing."""
        filling = water_filling(_variances(spectrum), capacity)
        return GaussianChannel(
            "rate_distortion", capacity, filling.variances, filling.gain, spectrum.mean, spectrum.basis
        )


def _guarded(variances: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Variances raised to the floor below which rounding hides them."""
    return np.maximum(variances, _FLOOR * float(variances.max(initial=0.0)))


def _variances(spectrum: Spectrum) -> Float[np.ndarray, " d"]:
    """Variances along principal directions of a spectrum that must have them."""
    if spectrum.data_eigenvalues is None or spectrum.basis is None:
        raise ValueError(
            f"a spectrum of shape {spectrum.shape!r} has no principal directions; decompose again"
        )
    return spectrum.data_eigenvalues


def _weights(spectrum: Spectrum) -> Float[np.ndarray, " d"]:
    """Weights of a spectrum that must have them."""
    if spectrum.weights is None:
        raise ValueError(f"a spectrum of shape {spectrum.shape!r} has no weights; decompose again")
    return spectrum.weights


def _refuse_weights(shape: str, weights: Float[np.ndarray, " n"] | None) -> None:
    """Refuse weights that would silently have no effect."""
    if weights is not None:
        raise ValueError(f"shape {shape!r} takes no weights; use shape 'personalized', or leave them out")
