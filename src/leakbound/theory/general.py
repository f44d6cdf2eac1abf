"""Any covariance and any budgets of clients: the cap of all mechanisms, and noise that attains it.

For every distribution of Xⁿ and every mechanism I(Xⁿ; Y) = Σ_i I(X_i; Y | X⁻ⁱ) + DTC(Xⁿ) − DTC(Xⁿ | Y). So
the utility is at most the mean budget plus DTC/n (theory E5). DTC, the dual total correlation, is what the
parameters share. Gaussian noise that makes the parameters independent given the release attains the cap. It
has Σ_Z⁻¹ = diag(2^{2ε_i}/v_i) − Σ_X⁻¹ (theory E6), which is the inverse of a covariance if all budgets are
large.

Below, ``signal`` is Σ_X, positive definite, and ``precision`` is Q = Σ_Z⁻¹ of the release, positive
semidefinite. Both are float64.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import linalg, optimize

from leakbound.accounting.gaussian import check_covariance, log_determinant
from leakbound.theory.budget import BIT, allowed_ratios


@dataclass(frozen=True)
class Problem:
    """Covariance of the clients' parameters and their budgets.

    Args:
        signal: (n, n), Σ_X, positive definite, float64.
        mi_budgets_bits: (n,), ε_i of each client, bits, in (0, 500].

    Raises:
        ValueError: If Σ_X is no positive definite covariance, a budget is out of range, or there is not one
            for each client.
    """

    signal: Float[np.ndarray, "n n"]
    mi_budgets_bits: Float[np.ndarray, " clients"]

    def __post_init__(self) -> None:
        if len(self.signal) != len(self.mi_budgets_bits):
            raise ValueError(
                f"mi_budgets_bits: {len(self.mi_budgets_bits)} for {len(self.signal)} clients; give one for each"
            )
        allowed_ratios(self.mi_budgets_bits)
        conditional_variances(self.signal)

    @property
    def powers(self) -> Float[np.ndarray, " n"]:
        """Largest precision of the release that each client's budget allows, (2^{2ε_i} − 1)/v_i."""
        return allowed_ratios(self.mi_budgets_bits) / conditional_variances(self.signal)

    @property
    def posterior_variances(self) -> Float[np.ndarray, " n"]:
        """Variance that a spent budget leaves for somebody who knows all other clients, v_i/2^{2ε_i}."""
        return conditional_variances(self.signal) * np.exp(-2.0 * self.mi_budgets_bits * BIT)


def conditional_variances(signal: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    """Compute the variance of each client's parameter once all others are known, v_i = 1/(Σ_X⁻¹)_ii.

    Args:
        signal: (n, n), Σ_X.

    Raises:
        ValueError: If Σ_X is not symmetric and positive definite.
    """
    return 1.0 / np.diag(_inverse(signal))


def dual_total_correlation_bits(signal: Float[np.ndarray, "n n"]) -> float:
    """Compute what Gaussian parameters share, DTC = ½ [log₂ det Σ_X − Σ_i log₂ v_i] >= 0, in bits.

    Args:
        signal: (n, n), Σ_X.

    Raises:
        ValueError: If Σ_X is not symmetric and positive definite.
    """
    variances = conditional_variances(signal)
    return 0.5 * (log_determinant(signal) - float(np.log(variances).sum())) / BIT


def utility_cap_bits(problem: Problem) -> float:
    """Compute the most that any mechanism within the budgets reveals, mean ε_i + DTC/n, bits per client.

    The cap holds for every distribution of the parameters with that DTC.
    """
    shared = dual_total_correlation_bits(problem.signal) / len(problem.signal)
    return float(problem.mi_budgets_bits.mean()) + shared


def independent_noise_variances(problem: Problem) -> Float[np.ndarray, " n"]:
    """Compute independent noise that spends each client's budget: case 2 for any covariance.

    Returns:
        (n,), v_i/(2^{2ε_i} − 1).
    """
    return 1.0 / problem.powers


def best_exchangeable_precision(problem: Problem) -> Float[np.ndarray, "n n"]:
    """Compute the exchangeable Q of greatest utility within every client's budget: case 3 for any covariance.

    All clients have the same Q_ii, so the least of the allowed powers limits them all. The one free variable
    is the share of this power for the joint direction of all clients. The utility is concave in it.

    Returns:
        Q = q_b I + (q_a − q_b) 11ᵀ/n with (q_a + (n − 1) q_b)/n = min_i P_i, positive semidefinite.

    Raises:
        ValueError: If there is only one client.
    """
    n, power = len(problem.signal), float(problem.powers.min())
    if n < 2:
        raise ValueError("n = 1: dependence takes at least 2 clients")

    def precision(share: float) -> Float[np.ndarray, "n n"]:
        joint, difference = n * power * share, n * power * (1.0 - share) / (n - 1)
        return difference * np.eye(n) + (joint - difference) / n

    best = optimize.minimize_scalar(
        lambda share: -release_utility_bits(problem.signal, precision(share)),
        bounds=(0.0, 1.0),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return precision(float(best.x))


def closed_form_precision(problem: Problem) -> Float[np.ndarray, "n n"] | None:
    """Compute Q = diag(2^{2ε_i}/v_i) − Σ_X⁻¹, which attains the cap. None if it is not semidefinite.

    If it is semidefinite, Σ_X⁻¹ + Σ_Z⁻¹ is diagonal and every budget is spent.

    Returns:
        Q = Σ_Z⁻¹, positive semidefinite. It is singular if a direction is not released.
    """
    inverse = _inverse(problem.signal)
    # 2^{2ε}/v − (Σ_X⁻¹)_ii is the allowed power itself, since (Σ_X⁻¹)_ii = 1/v.
    precision = np.diag(problem.powers + np.diag(inverse)) - inverse
    scale = np.sqrt(problem.posterior_variances)
    smallest = linalg.eigvalsh(precision * scale[:, None] * scale, subset_by_index=[0, 0])[0]
    return precision if smallest >= 0.0 else None


def noise_covariance(precision: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Invert a positive definite Q: Σ_Z = Q⁻¹.

    Raises:
        ValueError: If Q is singular, so that some direction has infinite noise. Release Y = A X + N(0, I)
            instead, with A from :func:`release_matrix`.
    """
    try:
        return _inverse(precision)
    except ValueError as error:
        raise ValueError(
            "the precision is singular: some direction is not released, its noise is infinite; "
            "release A X + N(0, I) with A = release_matrix(precision)"
        ) from error


def release_matrix(precision: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "r n"]:
    """Compute A of the release Y = A X + N(0, I) that leaks as much as noise of covariance Q⁻¹.

    It has AᵀA = Q and full row rank.

    Args:
        precision: Q, positive semidefinite, float64, of rank r up to rounding.

    Raises:
        ValueError: If Q is not symmetric.
    """
    check_covariance(precision, "precision")
    eigenvalues, vectors = linalg.eigh(precision)
    kept = eigenvalues > len(precision) * np.finfo(float).eps * eigenvalues[-1]
    return np.sqrt(eigenvalues[kept])[:, None] * vectors[:, kept].T


def release_utility_bits(signal: Float[np.ndarray, "n n"], precision: Float[np.ndarray, "n n"]) -> float:
    """Compute I(Xⁿ; Y)/n = (1/2n) log₂ det(I + Σ_X Q) of a release of any precision Q, bits per client."""
    factor = release_matrix(precision)
    return 0.5 * log_determinant(np.eye(len(factor)) + factor @ signal @ factor.T) / len(signal) / BIT


def _inverse(covariance: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Invert a positive definite matrix. The result is symmetric to the last bit."""
    check_covariance(covariance)
    try:
        factor = linalg.cho_factor(covariance, lower=True)
    except linalg.LinAlgError as error:
        raise ValueError(
            "the covariance is not positive definite: some client is determined by the others; merge such clients"
        ) from error
    inverse = linalg.cho_solve(factor, np.eye(len(covariance)))
    return 0.5 * (inverse + inverse.T)
