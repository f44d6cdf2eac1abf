"""Channel shapes: how noise of a given capacity is distributed over the directions of the data.

A shape decomposes the moments of the data once (:class:`Spectrum`) and is then calibrated at any capacity
(:class:`GaussianChannel`). A new shape is a class with these two functions and one line in the registry.

Directions whose variance is lost in rounding. Noise in proportion to the data variance would give no noise to
a direction with a computed variance of 0. A true variance of 1e-17 would then leak without bound. Such shapes
therefore use max(λ, 1e-12 λ_1) instead of λ to distribute the noise, and λ itself to calibrate it. The
capacity is met exactly. At full rank the result is the published closed form. At lower rank the exponent
counts the directions with variance. The guarantee is for the computed covariance, whose rounding error is
about 1e-16 λ_1. The noise in directions without variance must stay above this error. White noise does so up
to about 4 nats per direction with variance.

The published calibration of personalized noise (Tan et al. 2024, Theorem 3) is kept as a baseline. It does
not compute ln det(Σ_D + σ diag β), but bounds it from above by Hadamard's inequality, and by predicting each
pixel from the previous ones. Both bounds are valid and cost as much as the exact capacity.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy import linalg

from leakbound.accounting.gaussian import check_covariance, clip_eigenvalues
from leakbound.channels.calibration import (
    AIM,
    check_capacity,
    least_power_level,
    least_power_variances,
    noise_scale,
    water_filling,
)
from leakbound.channels.channel import GaussianChannel, Spectrum
from leakbound.channels.covariance import Moments, unshrunk
from leakbound.registry import SHAPES

_FLOOR = 1e-12


@runtime_checkable
class Shape(Protocol):
    """Interface of a channel shape."""

    takes_weights: ClassVar[bool]

    @staticmethod
    def decompose(moments: Moments, *, weights: Float[np.ndarray, " d"] | None = None) -> Spectrum:
        """Compute the spectrum of the data from which the shape is calibrated.

        Raises:
            ValueError: If ``weights`` are given to a shape that takes none. For other shapes, if they are
                missing, not positive and finite, or not one per pixel.
        """

    @staticmethod
    def calibrate(spectrum: Spectrum, capacity: float) -> GaussianChannel:
        """Calibrate the channel of this shape to a capacity, in nats per use."""


def shape_named(name: str) -> Shape:
    """Return the registered shape of a name, e.g. ``natural``.

    Raises:
        UnknownNameError: If no shape has this name.
    """
    shape: Shape = SHAPES.get(name)
    return shape


class Natural:
    """The same noise variance on every pixel, σI (Tan et al. 2024, Theorem 2). It needs eigenvalues only."""

    takes_weights: ClassVar[bool] = False

    @staticmethod
    def decompose(moments: Moments, *, weights: Float[np.ndarray, " d"] | None = None) -> Spectrum:
        """Compute the eigenvalues of the data covariance."""
        _refuse_weights("natural", weights)
        eigenvalues = moments.eigenvalues()
        return Spectrum(
            "natural", eigenvalues, moments.total_variance, moments.mean, data_eigenvalues=eigenvalues
        )

    @staticmethod
    def calibrate(spectrum: Spectrum, capacity: float) -> GaussianChannel:
        """Compute σI with ½ Σ ln(1 + λ_i/σ) = κ (:func:`~leakbound.channels.calibration.noise_scale`)."""
        scale = noise_scale(spectrum.eigenvalues, capacity)
        return GaussianChannel("natural", capacity, np.full(spectrum.dimension, scale))


class _Principal:
    """A shape along the principal directions of the data, their variances descending."""

    name: ClassVar[str]
    takes_weights: ClassVar[bool] = False

    @classmethod
    def decompose(cls, moments: Moments, *, weights: Float[np.ndarray, " d"] | None = None) -> Spectrum:
        """Compute the principal directions of the data."""
        _refuse_weights(cls.name, weights)
        variances, basis = moments.principal()
        return Spectrum(cls.name, variances, moments.total_variance, moments.mean, variances, basis)


class White(_Principal):
    """Noise in proportion to the data covariance, Σ_D / (e^{2κ/d} − 1), so that all directions leak equally.

    At rank r < d the exponent counts the r directions with variance, so that the capacity is κ. With d it
    would be κ r/d.
    """

    name: ClassVar[str] = "white"

    @classmethod
    def decompose(cls, moments: Moments, *, weights: Float[np.ndarray, " d"] | None = None) -> Spectrum:
        """Compute the principal directions of the data.

        Generalised eigenvalues are 1 in directions above the floor.
        """
        spectrum = super().decompose(moments, weights=weights)
        guarded = _guarded(spectrum.eigenvalues)
        ones = np.divide(spectrum.eigenvalues, guarded, out=np.zeros_like(guarded), where=guarded > 0)
        return replace(spectrum, eigenvalues=ones)

    @staticmethod
    def calibrate(spectrum: Spectrum, capacity: float) -> GaussianChannel:
        """Compute noise σ·max(λ_i, 1e-12 λ_1) along direction i, with σ from the generalised eigenvalues."""
        scale = noise_scale(spectrum.eigenvalues, capacity)
        guarded = _guarded(_variances(spectrum))
        return GaussianChannel(
            "white", capacity, np.where(guarded > 0, scale, 0.0) * guarded, basis=spectrum.basis
        )


class Personalized:
    """Noise variance σβ_i on pixel i for the user's weights β, calibrated by generalised eigenvalues."""

    takes_weights: ClassVar[bool] = True

    @staticmethod
    def decompose(moments: Moments, *, weights: Float[np.ndarray, " d"] | None = None) -> Spectrum:
        """Compute the eigenvalues of diag(β)^{-1/2} Σ_D diag(β)^{-1/2}."""
        if weights is None:
            raise ValueError(
                "a personalized shape needs weights, one > 0 per pixel; `box_weights` makes them"
            )
        beta = np.asarray(weights, dtype=np.float64)
        if beta.shape != moments.mean.shape:
            raise ValueError(
                f"weights: {beta.size} given, the images have {moments.dimension} pixels times colors"
            )
        if not np.all((beta > 0) & np.isfinite(beta)):
            raise ValueError(
                "weights: each must be positive and finite, because a pixel without noise would be revealed entirely"
            )
        root = np.sqrt(beta)
        eigenvalues = clip_eigenvalues(linalg.eigvalsh(moments.covariance / np.outer(root, root)))[
            ::-1
        ].copy()
        return Spectrum("personalized", eigenvalues, moments.total_variance, moments.mean, weights=beta)

    @staticmethod
    def calibrate(spectrum: Spectrum, capacity: float) -> GaussianChannel:
        """Compute noise σ diag(β) with ½ Σ ln(1 + μ_i/σ) = κ. A larger β gives more noise on that pixel."""
        scale = noise_scale(spectrum.eigenvalues, capacity)
        return GaussianChannel("personalized", capacity, scale * _weights(spectrum))


class PersonalizedPrinted(Personalized):
    """The personalized shape, calibrated by the published bound, which gives up to 11 dB too much noise.

    It is kept to reproduce the publication. It depends on the order of the pixels and needs a covariance of
    full rank.
    """

    @staticmethod
    def decompose(moments: Moments, *, weights: Float[np.ndarray, " d"] | None = None) -> Spectrum:
        """Compute generalised eigenvalues, and the quantities of the published bound.

        Raises:
            ValueError: As :class:`Shape`, and if the covariance is singular.
        """
        exact = Personalized.decompose(moments, weights=weights)
        return replace(
            exact, shape="personalized_printed", bound=innovations(moments.covariance, _weights(exact))
        )

    @staticmethod
    def calibrate(spectrum: Spectrum, capacity: float) -> GaussianChannel:
        """Compute noise σ diag(β) for which the published bound is κ. The true capacity is lower."""
        scale = printed_scale(spectrum.bound, capacity)
        return GaussianChannel("personalized_printed", capacity, scale * _weights(spectrum))


class LeastPower(_Principal):
    """The noise of least total variance for its capacity, between √λ_i (small κ) and constant (large κ)."""

    name: ClassVar[str] = "least_power"

    @staticmethod
    def calibrate(spectrum: Spectrum, capacity: float) -> GaussianChannel:
        """Compute noise of least power at the level that meets κ.

        See :func:`~leakbound.channels.calibration.least_power_variances`.
        """
        variances = _variances(spectrum)
        guarded = _guarded(variances)
        level = least_power_level(variances, capacity, guarded)
        noise = (
            np.full_like(variances, math.inf) if level == math.inf else least_power_variances(guarded, level)
        )
        return GaussianChannel("least_power", capacity, noise, basis=spectrum.basis)


class RateDistortion(_Principal):
    """The mechanism of least distortion for its capacity: shrink records to the mean, then add noise."""

    name: ClassVar[str] = "rate_distortion"

    @classmethod
    def decompose(cls, moments: Moments, *, weights: Float[np.ndarray, " d"] | None = None) -> Spectrum:
        """Compute the principal directions of the data. Eigenvalues are those before the covariance was shrunk.

        The shape hides the strongest directions least, and shrinking of a covariance to its mean variance makes
        these weaker. Calibrated to the shrunk variances of few records, it would leak a sixth more than stated.
        """
        spectrum = super().decompose(moments, weights=weights)
        return replace(spectrum, eigenvalues=unshrunk(spectrum.eigenvalues, moments))

    @staticmethod
    def calibrate(spectrum: Spectrum, capacity: float) -> GaussianChannel:
        """Compute gains and noise of :func:`~leakbound.channels.calibration.water_filling`.

        Directions below θ reveal nothing.
        """
        filling = water_filling(spectrum.eigenvalues, capacity)
        return GaussianChannel(
            "rate_distortion", capacity, filling.variances, filling.gain, spectrum.mean, spectrum.basis
        )


def _guarded(variances: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Raise variances to the floor below which rounding hides them."""
    return np.maximum(variances, _FLOOR * float(variances.max(initial=0.0)))


def _variances(spectrum: Spectrum) -> Float[np.ndarray, " d"]:
    """Return the variances along principal directions of a spectrum, which must have them."""
    if spectrum.data_eigenvalues is None or spectrum.basis is None:
        raise ValueError(
            f"a spectrum of shape {spectrum.shape!r} has no principal directions; decompose again"
        )
    return spectrum.data_eigenvalues


def _weights(spectrum: Spectrum) -> Float[np.ndarray, " d"]:
    """Return the weights of a spectrum, which must have them."""
    if spectrum.weights is None:
        raise ValueError(f"a spectrum of shape {spectrum.shape!r} has no weights; decompose again")
    return spectrum.weights


def _refuse_weights(shape: str, weights: Float[np.ndarray, " n"] | None) -> None:
    """Refuse weights for a shape that would ignore them."""
    if weights is not None:
        raise ValueError(f"shape {shape!r} takes no weights; use shape 'personalized', or leave them out")


def box_weights(
    colors: int, height: int, width: int, weight: float, rows: tuple[int, int], columns: tuple[int, int]
) -> Float[np.ndarray, " d"]:
    """Compute weights that are ``weight`` inside a rectangle and 1 elsewhere, equal for every color.

    Args:
        colors: Planes of an image, 1 or 3.
        height: Rows of pixels.
        width: Columns of pixels.
        weight: Relative noise variance inside the rectangle, > 0. A weight of 2 doubles the variance.
        rows: First row and the row after the last one, counted from 0.
        columns: First column and the column after the last one, counted from 0.

    Returns:
        (colors·height·width,) weights β in the order (color, row, column) of a flattened image.

    Raises:
        ValueError: If the rectangle is empty or exceeds the image, or ``weight`` is not positive and finite.
    """
    for name, (start, stop), size in (("rows", rows, height), ("columns", columns, width)):
        if not 0 <= start < stop <= size:
            raise ValueError(f"{name} = ({start}, {stop}): 0 <= start < stop <= {size} is required")
    if not 0 < weight < math.inf:
        raise ValueError(f"weight = {weight}: it must be positive and finite")
    weights = np.ones((colors, height, width))
    weights[:, slice(*rows), slice(*columns)] = weight
    return weights.reshape(-1)


def innovations(
    covariance: Float[np.ndarray, "d d"], weights: Float[np.ndarray, " d"]
) -> dict[str, Float[np.ndarray, " d"]]:
    """Compute the quantities of the published bound from one Cholesky factor L of the covariance.

    Args:
        covariance: Σ_D, positive definite, float64, squared pixel units.
        weights: β, each > 0.

    Returns:
        ``variances`` c_i = Σ_ii, ``innovations`` u_i = L_ii² (variance of pixel i that is left after
        predicting it from the previous ones), ``predictors`` k_i = Σ_j β_j (I − A)_ij² with I − A =
        diag(L_ii) L⁻¹, and ``weights`` β.

    Raises:
        ValueError: If the covariance is singular.
    """
    check_covariance(covariance)
    variances = np.diag(covariance).copy()
    try:
        factor = linalg.cholesky(covariance, lower=True)
        singular = bool(np.any(np.diag(factor) ** 2 <= len(factor) * np.finfo(np.float64).eps * variances))
    except linalg.LinAlgError:
        singular = True
    if singular:
        raise ValueError(
            "the published personalized bound needs a covariance of full rank, and this one is singular (constant "
            "pixels, or fewer images than pixels); use shape 'personalized', which is exact and needs no inverse"
        )
    inverse, _ = linalg.lapack.dtrtri(factor, lower=1)
    residuals = np.diag(factor)[:, None] * inverse
    return {
        "variances": variances,
        "innovations": np.diag(factor) ** 2,
        "predictors": residuals**2 @ weights,
        "weights": np.asarray(weights, dtype=np.float64),
    }


def printed_scale(bound: Mapping[str, Float[np.ndarray, " d"]], capacity: float) -> float:
    """Compute the smallest σ at which the published bound on the capacity is κ.

    The misprinted quotient of the publication is corrected.

    The bound is ½ {min[Σ ln(c_i + σβ_i), Σ ln(u_i + σk_i)] − Σ ln(σβ_i)}. Each of the two sums is a capacity
    for other eigenvalues: c_i/β_i, and u_i/k_i plus ½ Σ ln(k_i/β_i). Both fall in σ, so their minimum is κ at
    the smaller root.

    Args:
        bound: Result of :func:`innovations`.
        capacity: κ, nats per use, in [0, ∞].

    Returns:
        σ. The bound is never above κ and within 1e-9 of it. The true capacity is lower.

    Raises:
        ValueError: If ``capacity`` is negative or NaN.
    """
    check_capacity(capacity)
    scale = noise_scale(bound["variances"] / bound["weights"], capacity)
    floor = 0.5 * float(np.log(bound["predictors"] / bound["weights"]).sum())
    # The floor takes some of κ; aiming at κ·AIM − floor keeps the margin that noise_scale leaves.
    rest = capacity * AIM - floor
    return (
        min(scale, noise_scale(bound["innovations"] / bound["predictors"], rest))
        if 0 < rest < math.inf
        else scale
    )
