"""Calibration of noise to a capacity κ, by one safeguarded root finder per family of noise.

Every function here returns noise whose capacity, computed with the given eigenvalues, lies in [κ(1 − 1e-9),
κ]. The root finders aim 1e-10 below κ. A sum in another order, or eigenvalues computed in another way, then
still do not exceed κ.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from leakbound.accounting.gaussian import check_uses, clip_eigenvalues, gaussian_capacity, log_expm1

AIM = 1.0 - 1e-10  # share of κ that root finders aim at, see above
_SMALLEST = math.log(np.finfo(np.float64).tiny)
_LARGEST = math.log(np.finfo(np.float64).max)
_MAX_STEPS = 200


def check_capacity(capacity: float) -> None:
    """Check that a capacity is at least 0 nats. 0 and ∞ are allowed.

    Raises:
        ValueError: If it is negative or NaN.
    """
    if not capacity >= 0:
        raise ValueError(
            f"capacity = {capacity}: give a number >= 0, in nats per use, or use no channel for no noise"
        )


def representable(log_variance: float, capacity: float) -> float:
    """Compute a variance from its logarithm.

    Raises:
        ValueError: If the variance is smaller or larger than a normal float64. Such noise protects nothing or
            hides everything.
    """
    if log_variance in (math.inf, -math.inf):
        return math.exp(log_variance)
    if not _SMALLEST < log_variance < _LARGEST:
        raise ValueError(
            f"capacity = {capacity:g} nats needs a noise variance of e^{log_variance:.4g}, which float64 cannot hold; "
            "use a capacity nearer to the number of informative directions, or no channel"
        )
    return math.exp(log_variance)


def log_noise_scale(eigenvalues: Float[np.ndarray, " d"], capacity: float) -> float:
    """Compute the logarithm of :func:`noise_scale` for one use, also where σ itself overflows float64.

    g(t) = ½ Σ softplus(ln μ_i − t) is convex and falls. Newton's method, started at or below the root,
    therefore climbs to the root and never exceeds it. For every m, the m largest eigenvalues alone give a
    lower bound of the root. The largest of these bounds is the start.

    Args:
        eigenvalues: μ, as in :func:`noise_scale`.
        capacity: κ, nats, in [0, ∞].

    Returns:
        ln σ. It is −∞ if no noise is needed (no positive eigenvalue, or κ = ∞), and +∞ if nothing may be
        revealed (κ = 0).

    Raises:
        ValueError: If ``capacity`` is negative or NaN, or an eigenvalue is negative beyond rounding.
    """
    check_capacity(capacity)
    positive = clip_eigenvalues(eigenvalues)
    logs = np.log(np.sort(positive[positive > 0])[::-1])
    if not logs.size or capacity == math.inf:
        return -math.inf
    if capacity == 0:
        return math.inf
    target = capacity * AIM
    counts = np.arange(1, logs.size + 1)
    t = float(np.max(np.cumsum(logs) / counts - log_expm1(2.0 * target / counts)))
    for _ in range(_MAX_STEPS):
        excess = logs - t
        value = 0.5 * float(np.logaddexp(0.0, excess).sum())
        slope = 0.5 * float(np.exp(-np.logaddexp(0.0, -excess)).sum())
        step = (value - target) / slope
        t += step
        if abs(step) <= 1e-13 * max(1.0, abs(t)):
            return t
    raise ArithmeticError(f"no root found for capacity {capacity} in {_MAX_STEPS} Newton steps")


def noise_scale(eigenvalues: Float[np.ndarray, " d"], capacity: float, uses: float = 1.0) -> float:
    """Compute the smallest σ for which k uses of noise σM reveal at most κ: ½ Σ_i ln(1 + k μ_i / σ) = κ.

    Args:
        eigenvalues: μ, generalised eigenvalues of (data covariance, M), float64, each >= 0, in any order.
        capacity: κ, nats for all uses together, in [0, ∞].
        uses: k, number of uses with fresh noise, real, >= 1. Precisions add, so σ is proportional to k.
            Frozen noise has k = 1.

    Returns:
        σ, the scale of M: a variance in squared pixel units for M = I, a pure number for M = data covariance.
        It is 0 if no noise is needed, and ∞ if κ = 0. The capacity is never above κ and within 1e-9 of it.

    Raises:
        ValueError: If ``capacity`` is negative or NaN, ``uses`` < 1, an eigenvalue is negative beyond
            rounding, or σ is outside the range of float64.

    Source:
        Tan et al. 2024, Theorem 2.
    """
    check_uses(uses)
    return representable(log_noise_scale(eigenvalues, capacity) + math.log(uses), capacity)


def least_power_variances(eigenvalues: Float[np.ndarray, " d"], level: float) -> Float[np.ndarray, " d"]:
    """Compute noise variances of least total power at water level ν: σ_i = ν λ_i / (λ_i + √(λ_i² + 2 ν λ_i)).

    Args:
        eigenvalues: λ, data variance along each axis, float64, each >= 0.
        level: ν, a variance, >= 0 and finite.

    Returns:
        σ, one variance per axis, 0 where λ is 0. For ν far above λ it grows as √λ. For ν far below λ it tends
        to ν/2.
    """
    root = np.sqrt(eigenvalues) + np.sqrt(eigenvalues + 2.0 * level)
    return np.divide(
        level * np.sqrt(eigenvalues),
        root,
        out=np.zeros_like(eigenvalues),
        where=(root > 0) & (eigenvalues > 0),
    )


def least_power_level(
    eigenvalues: Float[np.ndarray, " d"], capacity: float, guarded: Float[np.ndarray, " d"] | None = None
) -> float:
    """Compute the water level ν at which the noise of least power has capacity κ.

    Args:
        eigenvalues: λ, data variance along each axis, float64, each >= 0.
        capacity: κ, nats per use, in [0, ∞].
        guarded: Eigenvalues, each >= λ, from which the noise is computed instead of λ. A direction whose
            variance is lost in rounding then still gets noise. The capacity is computed with λ.

    Returns:
        ν, a variance. It is 0 if no noise is needed, and ∞ if κ = 0. The capacity of
        ``least_power_variances(guarded, ν)`` is never above κ and within 1e-9 of it.

    Raises:
        ValueError: If ``capacity`` is negative or NaN, an eigenvalue is negative beyond rounding, or ν is
            outside the range of float64.
    """
    from scipy.optimize import brentq  # slow import

    check_capacity(capacity)
    signal = clip_eigenvalues(eigenvalues)
    shape = signal if guarded is None else guarded
    if not signal.any() or capacity == math.inf:
        return 0.0
    if capacity == 0:
        return math.inf

    def excess(log_level: float) -> float:
        """Return ln(capacity at this level / aim), which falls in the level."""
        reached = gaussian_capacity(signal, least_power_variances(shape, math.exp(log_level)))
        return math.log(reached) - math.log(capacity * AIM)

    # Brackets of ln ν: steps that double until the capacity lies between both ends.
    low = high = math.log(float(signal.max()))
    top = (
        _LARGEST - 2.0 - max(0.0, 0.5 * math.log(float(shape.max())))
    )  # up to here no variance overflows on the way
    stride = 1.0
    while low > _SMALLEST and excess(low) < 0:
        low = max(low - stride, _SMALLEST)
        stride = 2.0 * stride
    stride = 1.0
    while high < top and excess(high) > 0:
        high = min(high + stride, top)
        stride = 2.0 * stride
    if excess(low) < 0:
        return representable(_SMALLEST, capacity)
    if excess(high) > 0:
        return representable(_LARGEST, capacity)
    return math.exp(brentq(excess, low, high, xtol=1e-13, rtol=8.9e-16))


@dataclass(frozen=True)
class WaterFilling:
    """Reverse water-filling, the mechanism with the least distortion at a given mutual information.

    Attributes:
        level: θ, the water level, a variance. Axes with λ <= θ are switched off.
        gain: a, factor along each axis, in [0, 1).
        variances: n, noise variance added after the gain.
        distortion: E‖D − Y‖² = Σ min(θ, λ_i), exact for every distribution with these eigenvalues.
    """

    level: float
    gain: Float[np.ndarray, " d"]
    variances: Float[np.ndarray, " d"]
    distortion: float


def water_filling(eigenvalues: Float[np.ndarray, " d"], capacity: float) -> WaterFilling:
    """Compute the rate-distortion channel: D_i = min(θ, λ_i), gain a_i = 1 − D_i/λ_i, noise n_i = a_i D_i.

    θ solves ½ Σ_{λ_i > θ} ln(λ_i/θ) = κ. The excesses ln(λ_i/θ) are computed from ratios of neighbouring
    eigenvalues. At small κ they are tiny compared with ln θ, so subtracting ln θ would lose digits.

    Args:
        eigenvalues: λ, data variance along each axis, float64, each >= 0, in any order.
        capacity: κ, nats per use, in [0, ∞].

    Returns:
        Gains and noise variances in the order of ``eigenvalues``. κ = 0 reveals nothing, κ = ∞ everything.
        The capacity ½ Σ ln(1 + a²λ/n) is never above κ and within 1e-9 of it.

    Raises:
        ValueError: If ``capacity`` is negative or NaN, an eigenvalue is negative beyond rounding, or a noise
            variance is outside the range of float64.
    """
    check_capacity(capacity)
    signal = clip_eigenvalues(eigenvalues)
    if capacity == math.inf:
        return WaterFilling(0.0, (signal > 0).astype(np.float64), np.zeros_like(signal), 0.0)
    # The axes that stay above the water: those whose excesses so far cost less than the capacity.
    order = np.argsort(-signal, kind="stable")
    positive = signal[order][: np.count_nonzero(signal)]
    budget = 2.0 * capacity * AIM
    steps = _log_ratio(positive[:-1], positive[1:])  # ln(λ_j / λ_{j+1}) >= 0
    spent = np.concatenate([[0.0], np.cumsum(np.arange(1, positive.size) * steps)])  # Σ_{i<=m} ln(λ_i / λ_m)
    active = int(np.count_nonzero(spent[: positive.size] < budget))
    gain = np.zeros_like(signal)
    variances = np.zeros_like(signal)
    if not active:
        return WaterFilling(float(signal.max(initial=0.0)), gain, variances, float(signal.sum()))
    # The water level, from the excess of the lowest of these axes, and gains and noise from the excesses.
    lowest = (budget - spent[active - 1]) / active
    above = np.concatenate([np.cumsum(steps[: active - 1][::-1])[::-1], [0.0]])
    excess = lowest + above
    level = representable(math.log(positive[active - 1]) - lowest, capacity)
    chosen = order[:active]
    gain[chosen] = -np.expm1(-excess)
    variances[chosen] = gain[chosen] * level
    return WaterFilling(level, gain, variances, active * level + float(signal[order[active:]].sum()))


def _log_ratio(upper: Float[np.ndarray, " n"], lower: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Compute ln(upper / lower) for upper >= lower > 0, accurately for close and for distant values."""
    near = upper < 2.0 * lower
    relative = np.divide(upper - lower, lower, out=np.zeros_like(upper), where=near)
    return np.where(near, np.log1p(relative), np.log(upper) - np.log(lower))
