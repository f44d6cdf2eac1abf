"""Any covariance and any budgets of clients: the cap of all mechanisms, and the best Gaussian release.

For every distribution of Xⁿ and every mechanism I(Xⁿ; Y) = Σ_i I(X_i; Y | X⁻ⁱ) + DTC(Xⁿ) − DTC(Xⁿ | Y). So
the utility is at most the mean budget plus DTC/n (theory E5). DTC, the dual total correlation, is what the
parameters share. Gaussian noise that makes the parameters independent given the release attains the cap. It
has Σ_Z⁻¹ = diag(2^{2ε_i}/v_i) − Σ_X⁻¹ (theory E6), which is the inverse of a covariance if all budgets are
large.

Below, ``signal`` is Σ_X, positive definite, and ``precision`` is Q = Σ_Z⁻¹ of the release, positive
semidefinite. Both are float64.

Where no closed form exists, the problem is to maximise ½ ln det(I + Σ_X Q) over Q >= 0 with Q_ii <= P_i, P_i
= (2^{2ε_i} − 1)/v_i. This is the capacity of a channel with a power constraint for each antenna. The dual has
one price w_i > 0 for each client and is smooth. Let D = diag w and Σ_X = LLᵀ, and let s_j and V be the
eigenvalues and eigenvectors of D^{-½} Σ_X D^{-½}. They are computed from singular values of D^{-½} L, which
keep the digits of weakly released directions next to strongly released ones. Then

    g(w) = ½ Σ_{s_j > 1} [ln s_j − 1 + 1/s_j] + ½ Σ_i w_i P_i,   Q(w) = D^{-½} V diag(1 − 1/s)₊ Vᵀ D^{-½},

and the gradient of g is ½ (P − diag Q(w)). Newton's method with conjugate gradients starts at w_i =
v_i/2^{2ε_i}, which solves the problem wherever the closed form exists. A product with the Hessian costs two
matrix products. Q(w) with rows and columns rescaled to Q_ii = P_i is feasible. So g(w) minus its value bounds
its distance from the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import linalg, optimize
from scipy.sparse.linalg import LinearOperator, cg

from leakbound.accounting.gaussian import check_covariance, log_determinant
from leakbound_lab.papers.zeng2022.releases import BIT, allowed_ratios

_ITERATIONS = 100
_TOLERANCE = 1e-9  # largest gap to the optimum, bits per client
_DAMPING = 1e-12  # of the Hessian, in units of its diagonal when all directions are released
_SUFFICIENT = 1e-4  # share of the promised decrease that a step must bring
_ROUNDING = 1e-14  # of the dual value, below which a decrease cannot be seen


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
    n = len(problem.signal)
    power = float(problem.powers.min())
    if n < 2:
        raise ValueError("n = 1: dependence takes at least 2 clients")

    def precision(share: float) -> Float[np.ndarray, "n n"]:
        joint = n * power * share
        difference = n * power * (1.0 - share) / (n - 1)
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
    positive = eigenvalues > len(precision) * np.finfo(float).eps * eigenvalues[-1]
    return np.sqrt(eigenvalues[positive])[:, None] * vectors[:, positive].T


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


@dataclass(frozen=True)
class Optimum:
    """A release with a bound on its distance from the optimum.

    Args:
        precision: Q, positive semidefinite, with Q_ii = P_i: every budget is spent.
        utility_bits: Utility of this release, bits per client.
        bound_bits: Upper bound on the utility of any Gaussian release within the budgets, bits per client.
        released: Number of directions that are released.
    """

    precision: Float[np.ndarray, "n n"]
    utility_bits: float
    bound_bits: float
    released: int

    @property
    def gap_bits(self) -> float:
        """Upper bound on the utility that the release lacks to the best one, bits per client."""
        return max(0.0, self.bound_bits - self.utility_bits)


def optimal_release(problem: Problem) -> Optimum:
    """Find the Gaussian release of greatest utility within a budget for each client.

    Args:
        problem: Covariance and budgets.

    Returns:
        The release, with its certificate.

    Raises:
        ValueError: If the covariance is so ill-conditioned that the gap cannot be closed in float64.
    """
    powers = problem.powers
    root = linalg.cholesky(problem.signal, lower=True)
    point: _Point | None = _Point.at(root, powers, problem.posterior_variances)
    gap = np.inf
    for _ in range(_ITERATIONS):
        if point is None:
            break
        factor = point.feasible_factor(powers)
        utility = 0.5 * float(np.log1p(linalg.svdvals(root.T @ factor) ** 2).sum()) / len(root) / BIT
        bound = point.value / len(root) / BIT
        gap = bound - utility
        if abs(gap) <= _TOLERANCE:
            return Optimum(factor @ factor.T, utility, bound, factor.shape[1])
        point = _step(root, powers, point)
    raise ValueError(
        f"the gap to the optimum stays at {gap:.3g} bits per client, beyond {_TOLERANCE:g}: the covariance is too "
        "ill-conditioned for float64; merge clients that are nearly equal"
    )


@dataclass(frozen=True)
class _Point:
    """The dual at one choice of prices. ``powers`` holds w_i Q_ii."""

    prices: Float[np.ndarray, " n"]
    value: float
    eigenvalues: Float[np.ndarray, " n"]
    vectors: Float[np.ndarray, "n n"]
    powers: Float[np.ndarray, " n"]

    @classmethod
    def at(
        cls, root: Float[np.ndarray, "n n"], allowed: Float[np.ndarray, " n"], prices: Float[np.ndarray, " n"]
    ) -> _Point:
        """Evaluate the dual, in nats, from the factor L of the covariance."""
        vectors, values, _ = linalg.svd(root / np.sqrt(prices)[:, None])
        eigenvalues = values**2
        shares = _shares(eigenvalues)
        gained = np.log(np.maximum(eigenvalues, 1.0)) - shares
        value = 0.5 * float(gained.sum() + prices @ allowed)
        return cls(prices, value, eigenvalues, vectors, vectors**2 @ shares)

    def feasible_factor(self, allowed: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n r"]:
        """Compute R with RRᵀ feasible: the factor of Q(w) with rows rescaled to the allowed powers."""
        shares = _shares(self.eigenvalues)
        released = shares > 0.0
        factor = self.vectors[:, released] * np.sqrt(shares[released])
        lengths = np.sqrt(np.maximum(self.powers, np.finfo(float).tiny))
        return factor * (np.sqrt(allowed) / lengths)[:, None]

    def gradient(self, allowed: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Compute the derivative of the value with respect to the logarithm of each price."""
        return 0.5 * (self.prices * allowed - self.powers)

    def hessian(self) -> LinearOperator:
        """Compute the second derivative by relative changes of the prices (Daleckii and Krein)."""
        slopes = _slopes(self.eigenvalues) * np.add.outer(self.eigenvalues, self.eigenvalues)

        def product(change: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
            change = change.reshape(-1)
            turned = self.vectors.T @ (change[:, None] * self.vectors)
            curved = np.einsum("ij,ij->i", self.vectors @ (slopes * turned), self.vectors)
            return 0.5 * change * self.powers + 0.25 * curved + _DAMPING * change

        return LinearOperator((len(self.powers), len(self.powers)), matvec=product, dtype=np.float64)


def _shares(eigenvalues: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Compute (1 − 1/s)₊, the share of each direction that is released."""
    return np.where(eigenvalues > 1.0, 1.0 - 1.0 / np.maximum(eigenvalues, 1.0), 0.0)


def _slopes(eigenvalues: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n n"]:
    """Compute divided differences of (1 − 1/s)₊, its derivative where two eigenvalues agree."""
    shares = _shares(eigenvalues)
    gaps = np.subtract.outer(eigenvalues, eigenvalues)
    near = np.abs(gaps) <= 1e-9 * np.add.outer(np.abs(eigenvalues), np.abs(eigenvalues))
    derivative = np.where(eigenvalues > 1.0, 1.0 / np.maximum(eigenvalues, 1.0) ** 2, 0.0)
    middle = 0.5 * np.add.outer(derivative, derivative)
    return np.where(near, middle, np.subtract.outer(shares, shares) / np.where(near, 1.0, gaps))


def _step(root: Float[np.ndarray, "n n"], allowed: Float[np.ndarray, " n"], point: _Point) -> _Point | None:
    """Take a Newton step, shortened until prices are positive and the dual falls. None if it cannot fall."""
    gradient = point.gradient(allowed)
    # Early steps need no exact solution, late ones do, or convergence is linear.
    accuracy = min(0.1, float(np.sqrt(np.linalg.norm(gradient) / len(gradient))))
    direction, _ = cg(point.hessian(), -gradient, rtol=accuracy, maxiter=50)
    length = min(1.0, 0.9 / max(float(-direction.min()), np.finfo(float).tiny))
    promised = float(gradient @ direction)
    while length > 1e-8:
        trial = _Point.at(root, allowed, point.prices * (1.0 + length * direction))
        if trial.value <= point.value + _SUFFICIENT * length * promised + _ROUNDING * abs(point.value):
            return trial
        length /= 2.0
    return None
