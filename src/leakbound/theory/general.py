"""Any covariance of the parameters, a budget for each client: the cap of every mechanism, and noise that meets it.

For every distribution of Xⁿ and every mechanism I(Xⁿ; Y) = Σ_i I(X_i; Y | X⁻ⁱ) + DTC(Xⁿ) − DTC(Xⁿ | Y), so
that the utility is at most the mean budget plus DTC/n (theory E5), where DTC, the dual total correlation, is
what the parameters share. Gaussian noise that leaves the parameters independent given the release attains it:
Σ_Z⁻¹ = diag(2^{2ε_i}/v_i) − Σ_X⁻¹ (theory E6), which is a covariance's inverse for all large budgets.

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
        signal: Σ_X, positive definite, float64.
        mi_budgets_bits: ε_i of each client, in (0, 500].

    Raises:
        ValueError: If Σ_X is no positive definite covariance, or budgets are outside or not one for each
            client.
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
        """Variance that a client which spends its budget keeps for somebody who knows all others, v_i/2^{2ε_i}."""
        return conditional_variances(self.signal) * np.exp(-2.0 * self.mi_budgets_bits * BIT)


def conditional_variances(signal: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    """Compute the variance of each client's parameter once all others are known, v_i = 1/(Σ_X⁻¹)_ii.

    Raises:
        ValueError: If Σ_X is not symmetric and positive definite.
    """
    return 1.0 / np.diag(_inverse(signal))


def dual_total_correlation_bits(signal: Float[np.ndarray, "n n"]) -> float:
    """Compute the information that Gaussian parameters share, DTC = ½ [log₂ det Σ_X − Σ_i log₂ v_i] >= 0, bits.

    Raises:
        ValueError: If Σ_X is not symmetric and positive definite.
    """
    variances = conditional_variances(signal)
    return 0.5 * (log_determinant(signal) - float(np.log(variances).sum())) / BIT


def utility_cap_bits(problem: Problem) -> float:
    """Compute the most that any mechanism within the budgets can reveal per client, mean ε_i + DTC/n, bits.

    The cap holds for every distribution of the parameters with that DTC.
    """
    shared = dual_total_correlation_bits(problem.signal) / len(problem.signal)
    return float(problem.mi_budgets_bits.mean()) + shared


def independent_noise_variances(problem: Problem) -> Float[np.ndarray, " n"]:
    """Compute independent noise that spends each client's budget, v_i/(2^{2ε_i} − 1): case 2 for any covariance."""
    return 1.0 / problem.powers


def best_exchangeable_precision(problem: Problem) -> Float[np.ndarray, "n n"]:
    """Find the exchangeable Q of greatest utility within every client's budget: case 3 for any covariance.

    All clients have the same Q_ii, so the least of the allowed powers holds for all. The one free variable is
    the share of it that goes to all clients moving together, and the utility is concave in it.

    Returns:
        Q = q_b I + (q_a − q_b) 11ᵀ/n with (q_a + (n − 1) q_b)/n = min_i P_i, positive semidefinite.

    Raises:
        ValueError: If there is one client only.
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
    """Compute the inverse noise covariance diag(2^{2ε_i}/v_i) − Σ_X⁻¹ that attains the cap, None if not semidefinite.

    Where it is, Σ_X⁻¹ + Σ_Z⁻¹ is diagonal and every budget is spent.

    Returns:
        Q = Σ_Z⁻¹, positive semidefinite. Singular where a direction is not released at all.
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
        ValueError: If Q is singular: some direction has infinite noise. Release Y = A X + N(0, I) instead,
            with A from :func:`release_matrix`.
    """
    try:
        return _inverse(precision)
    except ValueError as error:
        raise ValueError(
            "the precision is singular: some direction is not released, its noise is infinite; "
            "release A X + N(0, I) with A = release_matrix(precision)"
        ) from error


def release_matrix(precision: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "r n"]:
    """Find A of the release Y = A X + N(0, I) that leaks as much as noise of covariance Q⁻¹, AᵀA = Q, of full row rank.

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
    """Compute I(Xⁿ; Y)/n of a release of precision Q, singular or not, (1/2n) log₂ det(I + Σ_X Q), bits per client."""
    factor = release_matrix(precision)
    return 0.5 * log_determinant(np.eye(len(factor)) + factor @ signal @ factor.T) / len(signal) / BIT


def _inverse(covariance: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Inverse of a positive definite matrix, symmetric to the last bit."""
    check_covariance(covariance)
    try:
        factor = linalg.cho_factor(covariance, lower=True)
    except linalg.LinAlgError as error:
        raise ValueError(
            "the covariance is not positive definite: some client is determined by the others; merge such clients"
        ) from error
    inverse = linalg.cho_solve(factor, np.eye(len(covariance)))
    return 0.5 * (inverse + inverse.T)
