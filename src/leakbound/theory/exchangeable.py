"""Covariances that treat all clients alike, and what a release of them tells, in closed form.

Such a matrix has two eigenvalues: a + (n − 1) b for all clients moving together, and a − b, n − 1 times, for their
differences. Everything in cases 2 and 3 of Zeng et al. 2022 follows from these two numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from leakbound.theory.budget import BIT


@dataclass(frozen=True)
class Exchangeable:
    """Positive definite covariance with equal variances a and equal covariances b.

    Args:
        variance: a, in (0, ∞); σ_m² of parameters, σ² of noise.
        covariance: b of any two clients, in (−a/(n − 1), a); σ_k² of parameters, σ_e² of noise.
        n_clients: n, >= 2.

    Raises:
        ValueError: If n < 2 or the matrix is not positive definite.
    """

    variance: float
    covariance: float
    n_clients: int

    def __post_init__(self) -> None:
        if self.n_clients < 2:
            raise ValueError(f"n_clients = {self.n_clients}: dependence takes at least 2 clients")
        if not (0.0 < self.variance < math.inf):
            raise ValueError(f"variance = {self.variance}: a variance is > 0 and finite")
        least = -self.variance / (self.n_clients - 1)
        if not least < self.covariance < self.variance:
            raise ValueError(
                f"covariance = {self.covariance}: {self.n_clients} clients of variance {self.variance} can have equal "
                f"covariances above {least:.6g} and below {self.variance:.6g} only"
            )

    @property
    def joint(self) -> float:
        """Eigenvalue of all clients moving together, a + (n − 1) b."""
        return self.variance + (self.n_clients - 1) * self.covariance

    @property
    def difference(self) -> float:
        """Eigenvalue of the n − 1 differences between clients, a − b."""
        return self.variance - self.covariance

    @property
    def conditional_variance(self) -> float:
        """Variance of one client once all others are known (theory B3).

        The product form, since the difference σ_m² − (n − 1) σ_k⁴ / (σ_m² + (n − 2) σ_k²) loses digits.
        """
        return self.joint * self.difference / (self.variance + (self.n_clients - 2) * self.covariance)

    def matrix(self) -> Float[np.ndarray, "n n"]:
        """The covariance itself, float64."""
        return np.full((self.n_clients, self.n_clients), self.covariance) + self.difference * np.eye(self.n_clients)


def check_same_clients(signal: Exchangeable, noise: Exchangeable) -> None:
    """Refuse noise for another number of clients.

    Raises:
        ValueError: If the numbers differ.
    """
    if signal.n_clients != noise.n_clients:
        raise ValueError(f"noise for {noise.n_clients} clients, parameters of {signal.n_clients}: give equally many")


def exchangeable_privacy_bits(signal: Exchangeable, noise: Exchangeable) -> float:
    """What a release tells about one client to somebody who knows all others, I(X_i; Yⁿ | X⁻ⁱ).

    ½ log₂(1 + v [1/z_a + (n − 1)/z_b]/n), with v the conditional variance and z the noise's eigenvalues.

    Args:
        signal: Covariance of the clients' parameters.
        noise: Covariance of the noise.

    Returns:
        Bits, the same for every client.

    Raises:
        ValueError: If signal and noise have different numbers of clients.

    Source:
        Zeng et al. 2022, Eq. (19), whose evaluation (22), (24) is wrong; see :mod:`leakbound.theory.printed`.
    """
    check_same_clients(signal, noise)
    n = signal.n_clients
    precision = (1.0 / noise.joint + (n - 1) / noise.difference) / n
    return 0.5 * math.log1p(signal.conditional_variance * precision) / BIT


def exchangeable_utility_bits(signal: Exchangeable, noise: Exchangeable) -> float:
    """What a release tells about all parameters together, for each client, I(Xⁿ; Yⁿ)/n.

    (1/2n) [log₂(1 + x_a/z_a) + (n − 1) log₂(1 + x_b/z_b)].

    Args:
        signal: Covariance of the clients' parameters.
        noise: Covariance of the noise.

    Returns:
        Bits per client.

    Raises:
        ValueError: If signal and noise have different numbers of clients.

    Source:
        Zeng et al. 2022, Eqs. (18) and (27).
    """
    check_same_clients(signal, noise)
    n = signal.n_clients
    total = math.log1p(signal.joint / noise.joint) + (n - 1) * math.log1p(signal.difference / noise.difference)
    return 0.5 * total / n / BIT


def exchangeable_unconditional_leak_bits(signal: Exchangeable, noise: Exchangeable) -> float:
    """What a release tells about one client to somebody who knows nothing else, I(X_i; Yⁿ).

    With correlated parameters the others' releases tell about the client too, so that this may exceed the conditional
    figure, which is all that the budget bounds.

    Args:
        signal: Covariance of the clients' parameters.
        noise: Covariance of the noise.

    Returns:
        Bits, the same for every client.

    Raises:
        ValueError: If signal and noise have different numbers of clients.
    """
    check_same_clients(signal, noise)
    n = signal.n_clients
    posterior = [x / (1.0 + x / z) for x, z in zip(_modes(signal), _modes(noise), strict=True)]
    return 0.5 * math.log(signal.variance * n / (posterior[0] + (n - 1) * posterior[1])) / BIT


def exchangeable_dual_total_correlation_bits(signal: Exchangeable) -> float:
    """Information that the clients' parameters share, h(Xⁿ) − Σ_i h(X_i | X⁻ⁱ) >= 0, in bits.

    ½ [log₂ x_a + (n − 1) log₂ x_b − n log₂ v].

    Args:
        signal: Covariance of the clients' parameters.
    """
    n, v = signal.n_clients, signal.conditional_variance
    return 0.5 * (math.log(signal.joint / v) + (n - 1) * math.log(signal.difference / v)) / BIT


def _modes(covariance: Exchangeable) -> tuple[float, float]:
    """The two eigenvalues."""
    return covariance.joint, covariance.difference
