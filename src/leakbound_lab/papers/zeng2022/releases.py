"""Budgets of clients, and what a release of their parameters with Gaussian noise reveals, in bits.

Covariances that treat all clients alike have two eigenvalues: a + (n − 1) b for the joint direction of all
clients, and a − b, n − 1 times, for their differences. Everything in cases 2 and 3 of Zeng et al. 2022
follows from these two numbers (:class:`Release`). Functions of full covariances compute the same by
determinants. There the release is Yⁿ = Xⁿ + Zⁿ with Gaussian parameters and independent Gaussian noise,
``signal`` is Σ_X and ``noise`` is Σ_Z, both positive definite and float64, and ``client`` is i, from 0. They
raise a ``ValueError`` if a covariance is not positive definite, or if there is no such client.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from leakbound.accounting.gaussian import log_determinant, mutual_information

BIT = math.log(2.0)
"""Nats in a bit."""
_LARGEST = 500.0  # beyond it 2^(2ε) leaves float64


def check_budget(mi_budget_bits: float, name: str = "mi_budget_bits") -> None:
    """Check that the closed forms are defined for a budget.

    Args:
        mi_budget_bits: ε, bits.
        name: Name of the setting, for the message.

    Raises:
        ValueError: If it is not in (0, 500] bits.
    """
    if not 0.0 < mi_budget_bits <= _LARGEST:
        raise ValueError(
            f"{name} = {mi_budget_bits}: a budget is > 0 and <= {_LARGEST:g} bits; at 0 nothing may be released"
        )


def allowed_ratio(mi_budget_bits: float) -> float:
    """Convert ε bits to the variance ratio of signal and noise that leaks ε about a Gaussian, 2^{2ε} − 1.

    Args:
        mi_budget_bits: ε, bits, in (0, 500].

    Raises:
        ValueError: If ε is not in (0, 500] bits.
    """
    check_budget(mi_budget_bits)
    return math.expm1(2.0 * mi_budget_bits * BIT)


def allowed_ratios(mi_budgets_bits: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Apply :func:`allowed_ratio` to each client's budget.

    Args:
        mi_budgets_bits: ε_i of each client, bits, in (0, 500].

    Raises:
        ValueError: If a budget is not in (0, 500] bits. The message names the client.
    """
    for client, budget in enumerate(mi_budgets_bits):
        check_budget(float(budget), f"mi_budgets_bits[{client}]")
    return np.expm1(2.0 * mi_budgets_bits * BIT)


@dataclass(frozen=True)
class Exchangeable:
    """Positive definite covariance with equal variances a and equal covariances b.

    Args:
        variance: a, in (0, ∞). It is σ_m² for parameters, and σ² for noise.
        covariance: b of any two clients, in (−a/(n − 1), a). It is σ_k² for parameters, and σ_e² for noise.
        n_clients: n, number of clients, >= 2.

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
        """Eigenvalue of the joint direction of all clients, a + (n − 1) b."""
        return self.variance + (self.n_clients - 1) * self.covariance

    @property
    def difference(self) -> float:
        """Eigenvalue of the n − 1 differences between clients, a − b."""
        return self.variance - self.covariance

    @property
    def conditional_variance(self) -> float:
        """Variance of one client once all others are known (theory B3).

        It is computed as a product, because the difference σ_m² − (n − 1) σ_k⁴ / (σ_m² + (n − 2) σ_k²) loses
        digits.
        """
        return self.joint * self.difference / (self.variance + (self.n_clients - 2) * self.covariance)

    def matrix(self) -> Float[np.ndarray, "n n"]:
        """Compute the covariance matrix (n, n), float64."""
        return np.full((self.n_clients, self.n_clients), self.covariance) + self.difference * np.eye(
            self.n_clients
        )

    @property
    def dual_total_correlation_bits(self) -> float:
        """Information that the clients' parameters share, h(Xⁿ) − Σ_i h(X_i | X⁻ⁱ) >= 0.

        It is ½ [log₂ x_a + (n − 1) log₂ x_b − n log₂ v], in bits.
        """
        n = self.n_clients
        v = self.conditional_variance
        return 0.5 * (math.log(self.joint / v) + (n - 1) * math.log(self.difference / v)) / BIT


@dataclass(frozen=True)
class Release:
    """Parameters of clients with noise of the same form, Yⁿ = Xⁿ + Zⁿ.

    Below, x_a and x_b are the eigenvalues of the parameters, z_a and z_b those of the noise, and v is the
    conditional variance of the parameters.

    Args:
        signal: Covariance of the clients' parameters.
        noise: Covariance of the noise.

    Raises:
        ValueError: If signal and noise have different numbers of clients.
    """

    signal: Exchangeable
    noise: Exchangeable

    def __post_init__(self) -> None:
        if self.signal.n_clients != self.noise.n_clients:
            raise ValueError(
                f"noise for {self.noise.n_clients} clients, parameters of {self.signal.n_clients}: give equally many"
            )

    @property
    def privacy_bits(self) -> float:
        """Information about any one client for somebody who knows all others, I(X_i; Yⁿ | X⁻ⁱ), in bits.

        It is ½ log₂(1 + v [1/z_a + (n − 1)/z_b]/n).

        Source:
            Zeng et al. 2022, Eq. (19), whose evaluation (22), (24) is wrong. See
            :mod:`leakbound_lab.papers.zeng2022.cases`.
        """
        n = self.signal.n_clients
        precision = (1.0 / self.noise.joint + (n - 1) / self.noise.difference) / n
        return 0.5 * math.log1p(self.signal.conditional_variance * precision) / BIT

    @property
    def utility_bits(self) -> float:
        """Information about all parameters together, I(Xⁿ; Yⁿ)/n, in bits per client.

        It is (1/2n) [log₂(1 + x_a/z_a) + (n − 1) log₂(1 + x_b/z_b)].

        Source:
            Zeng et al. 2022, Eqs. (18) and (27).
        """
        n = self.signal.n_clients
        total = math.log1p(self.signal.joint / self.noise.joint) + (n - 1) * math.log1p(
            self.signal.difference / self.noise.difference
        )
        return 0.5 * total / n / BIT

    @property
    def unconditional_leak_bits(self) -> float:
        """Information about any one client for somebody who knows nothing else, I(X_i; Yⁿ), in bits.

        If parameters are correlated, the releases of others also leak about the client. So this may exceed
        the conditional information, which is all that the budget bounds.
        """
        n = self.signal.n_clients
        joint = self.signal.joint / (1.0 + self.signal.joint / self.noise.joint)
        difference = self.signal.difference / (1.0 + self.signal.difference / self.noise.difference)
        return 0.5 * math.log(self.signal.variance * n / (joint + (n - 1) * difference)) / BIT


def utility_bits(signal: Float[np.ndarray, "n n"], noise: Float[np.ndarray, "n n"]) -> float:
    """Compute I(Xⁿ; Yⁿ)/n = (1/2n) log₂[det(Σ_X + Σ_Z) / det Σ_Z], bits per client.

    Source:
        Zeng et al. 2022, Eqs. (4), (25).
    """
    return 0.5 * (log_determinant(signal + noise) - log_determinant(noise)) / len(signal) / BIT


def privacy_bits(signal: Float[np.ndarray, "n n"], noise: Float[np.ndarray, "n n"], client: int) -> float:
    """Compute I(X_i; Yⁿ | X⁻ⁱ) = ½ log₂[det Cov(Yⁿ, X⁻ⁱ) / (det Cov(X⁻ⁱ) det Σ_Z)], for n >= 2 clients.

    Source:
        Zeng et al. 2022, Eq. (19).
    """
    other_clients = _other_clients(len(signal), client)
    others_covariance = signal[np.ix_(other_clients, other_clients)]
    cross = signal[:, other_clients]
    joint = np.block([[signal + noise, cross], [cross.T, others_covariance]])
    return 0.5 * (log_determinant(joint) - log_determinant(others_covariance) - log_determinant(noise)) / BIT


def unconditional_leak_bits(
    signal: Float[np.ndarray, "n n"], noise: Float[np.ndarray, "n n"], client: int
) -> float:
    """Compute I(X_i; Yⁿ), information about a client without side information, for n >= 2 clients."""
    _other_clients(len(signal), client)
    cross = signal[:, [client]]
    joint = np.block([[signal[[client]][:, [client]], cross.T], [cross, signal + noise]])
    return mutual_information(joint, [0]) / BIT


def _other_clients(clients: int, client: int) -> list[int]:
    """List all clients except one."""
    if clients < 2 or not 0 <= client < clients:
        raise ValueError(f"client = {client}: one of 0..{clients - 1}, and at least two clients")
    return [other for other in range(clients) if other != client]
