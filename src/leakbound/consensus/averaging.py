"""Averaging by exchange of noisy states: simulated for all repetitions at once, and in closed form."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri

from leakbound.consensus.schemes import Draws, Scheme, check_decay


@dataclass(frozen=True)
class Reports:
    """Reports of contributors to their servers.

    Attributes:
        mean: x̄, mean of the contributors' true values.
        states: (n,) first states y_i(0) = c Σ_j x̃_ij of the servers, c = n / Σ m_i.
    """

    mean: float
    states: Float[np.ndarray, " n"]

    @property
    def reported_mean(self) -> float:
        """x̂, mean of the reported values: what the servers are to agree on."""
        return float(self.states.mean())


def report(values: Sequence[Float[np.ndarray, " _"]], noise_variance: float, draws: Draws) -> Reports:
    """Step 1: every contributor adds noise to its value and reports it to its server.

    Args:
        values: The values x_ij of each server's contributors; servers may have different numbers of them.
        noise_variance: σ_ij², the same for all, > 0.
        draws: Source of the noise.

    Raises:
        ValueError: If a server has no contributor or the variance is not positive.

    Source:
        Wang et al. 2020, Eq. (5) and Section 2.1.
    """
    if not noise_variance > 0:
        raise ValueError(f"noise_variance = {noise_variance}: contributors need noise of a positive variance")
    counts = np.array([len(own) for own in values])
    if not len(counts) or counts.min() == 0:
        raise ValueError("values: every server needs at least one contributor")
    scale = state_scale(counts)
    noisy = [own + math.sqrt(noise_variance) * draws.standard_normal(len(own)) for own in values]
    return Reports(float(np.concatenate(values).mean()), scale * np.array([own.sum() for own in noisy]))


def state_scale(counts: Int[np.ndarray, " n"]) -> float:
    """Factor c = n / Σ m_i by which servers scale the sum of their reports, so that states average to the mean."""
    return len(counts) / float(counts.sum())


def reported_mean_error(noise_variances: Float[np.ndarray, " m"], delta: float, *, as_printed: bool = False) -> float:
    """Distance |x̂ − x̄| that is exceeded with probability δ.

    z_{1−δ/2} √(Σ σ_ij²) / Σ m_i, exact since the noise is Gaussian.

    Args:
        noise_variances: σ_ij² of all contributors.
        delta: δ, in (0, 1).
        as_printed: The larger value √(Σ σ_ij² / δ) / Σ m_i, from Chebyshev's inequality.

    Raises:
        ValueError: If δ is outside (0, 1).

    Source:
        Wang et al. 2020, Lemma 2.
    """
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta = {delta}: a probability inside (0, 1) is needed")
    quantile = 1.0 / math.sqrt(delta) if as_printed else -float(ndtri(delta / 2.0))
    return quantile * math.sqrt(float(noise_variances.sum())) / len(noise_variances)


def trajectories(
    weights: Float[np.ndarray, "n n"], states: Float[np.ndarray, " n"], scheme: Scheme, runs: int, draws: Draws
) -> Iterator[Float[np.ndarray, "runs n"]]:
    """States y(0), y(1) = W(y(0) + θ(0)), … of all repetitions, without end.

    Args:
        weights: W, symmetric and doubly stochastic.
        states: y(0), the same in every repetition.
        scheme: Law of the noise.
        runs: Number of repetitions.
        draws: Source of the noise.

    Source:
        Wang et al. 2020, Eq. (7).
    """
    current = np.tile(states, (runs, 1))
    for noise in scheme.noises(runs, draws):
        yield current
        current = (current + noise) @ weights.T


def expected_square(
    weights: Float[np.ndarray, "n n"],
    states: Float[np.ndarray, " n"],
    variances: Float[np.ndarray, " n"],
    decay: float | None,
    time: int,
) -> float:
    """E‖y(s) − x̂ 1‖² over the noise of scheme 1, 2 or 3, in closed form.

    With P_k = Wᵏ and M_k = P_{s−k} − P_{s−k−1} for k < s − 1, M_{s−1} = W, schemes 2 and 3 have
    ‖P_s y(0) − x̂ 1‖² + Σ_{k<s} ρᵏ Σ_i σ_i² ‖column i of M_k‖²; scheme 1 has M_0 = P_s alone.

    Args:
        weights: W, symmetric and doubly stochastic.
        states: y(0).
        variances: (n,) variance of φ_i(0).
        decay: Factor of the variance in a step: ρ for scheme 2, ρ² for scheme 3, none for scheme 1.
        time: s, steps after T₀, >= 0.

    Raises:
        ValueError: If the decay is outside (0, 1).
    """
    if decay is not None:
        check_decay(decay)
    powers = [np.eye(len(weights))]
    for _ in range(time):
        powers.append(weights @ powers[-1])
    bias = float(((powers[time] @ states - states.mean()) ** 2).sum())
    if time == 0:
        return bias
    if decay is None:
        return bias + float((powers[time] ** 2).sum(axis=0) @ variances)
    passed = [powers[time - k] - powers[time - k - 1] for k in range(time - 1)] + [weights]
    return bias + sum(decay**k * float((matrix**2).sum(axis=0) @ variances) for k, matrix in enumerate(passed))


def final_gap(variances: Float[np.ndarray, " n"]) -> float:
    """E|y(∞) − x̂| of scheme 1, whose states agree on a value that is N(x̂, Σσ_i²/n²), not on x̂."""
    return math.sqrt(2.0 / math.pi * float(variances.sum())) / len(variances)
