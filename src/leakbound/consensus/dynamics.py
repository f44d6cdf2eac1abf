"""Averaging by exchange of noisy states: simulated for all repetitions at once, and in closed form."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from leakbound.consensus.schemes import Draws, Scheme


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


def collect_reports(
    values: Sequence[Float[np.ndarray, " _"]], noise_variance: float, draws: Draws
) -> Reports:
    """Simulate step 1: every contributor adds noise to its value and reports it to its server.

    Args:
        values: The values x_ij of each server's contributors. Servers may have different numbers of them.
        noise_variance: σ_ij², the same for all, > 0.
        draws: Source of the noise.

    Raises:
        ValueError: If a server has no contributor or the variance is not positive.

    Source:
        Wang et al. 2020, Eq. (5) and Section 2.1.
    """
    if not noise_variance > 0:
        raise ValueError(f"noise_variance = {noise_variance}: contributors need noise of a positive variance")
    counts = np.array([len(reports) for reports in values])
    if not len(counts) or counts.min() == 0:
        raise ValueError("values: every server needs at least one contributor")
    scale = state_scale(counts)
    noisy = [reports + math.sqrt(noise_variance) * draws.standard_normal(len(reports)) for reports in values]
    return Reports(
        float(np.concatenate(values).mean()), scale * np.array([reports.sum() for reports in noisy])
    )


def state_scale(counts: Int[np.ndarray, " n"]) -> float:
    """Compute c = n / Σ m_i by which servers scale the sum of their reports, so that states average to the mean."""
    return len(counts) / float(counts.sum())


def trajectories(
    weights: Float[np.ndarray, "n n"],
    states: Float[np.ndarray, " n"],
    scheme: Scheme,
    runs: int,
    draws: Draws,
) -> Iterator[Float[np.ndarray, "runs n"]]:
    """Yield states y(0), y(1) = W(y(0) + θ(0)), … of all repetitions, without end.

    Args:
        weights: W, symmetric and doubly stochastic.
        states: y(0), the same in every repetition.
        scheme: Distribution of the noise.
        runs: Number of repetitions.
        draws: Source of the noise.

    Source:
        Wang et al. 2020, Eq. (7).
    """
    current = np.tile(states, (runs, 1))
    for noise in scheme.noises(runs, draws):
        yield current
        current = (current + noise) @ weights.T


def final_gap(variances: Float[np.ndarray, " n"]) -> float:
    """Compute E|y(∞) − x̂| of scheme 1, whose states agree on a value that is N(x̂, Σσ_i²/n²), not on x̂."""
    return math.sqrt(2.0 / math.pi * float(variances.sum())) / len(variances)
