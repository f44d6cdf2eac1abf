"""The best Gaussian release within a budget for each client, where no closed form exists, with a certificate.

The problem is to maximise ½ ln det(I + Σ_X Q) over Q >= 0 with Q_ii <= P_i, P_i = (2^{2ε_i} − 1)/v_i. This is
the capacity of a channel with a power constraint for each antenna. The dual has one price w_i > 0 for each
client and is smooth. Let D = diag w and Σ_X = LLᵀ, and let s_j and V be the eigenvalues and eigenvectors of
D^{-½} Σ_X D^{-½}. They are computed from singular values of D^{-½} L, which keep the digits of weakly
released directions next to strongly released ones. Then

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
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg

from leakbound.theory.budget import BIT
from leakbound.theory.general import Problem

_ITERATIONS = 100
_DAMPING = 1e-12  # of the Hessian, in units of its diagonal when all directions are released
_SUFFICIENT = 1e-4  # share of the promised decrease that a step must bring
_ROUNDING = 1e-14  # of the dual value, below which a decrease cannot be seen


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


def optimal_release(problem: Problem, tolerance_bits: float = 1e-9) -> Optimum:
    """Find the Gaussian release of greatest utility within a budget for each client.

    Args:
        problem: Covariance and budgets.
        tolerance_bits: Largest gap to the optimum, bits per client.

    Returns:
        The release, with its certificate.

    Raises:
        ValueError: If the covariance is so ill-conditioned that the gap cannot be closed in float64.
    """
    powers, root = problem.powers, linalg.cholesky(problem.signal, lower=True)
    point: _Point | None = _Point.at(root, powers, problem.posterior_variances)
    gap = np.inf
    for _ in range(_ITERATIONS):
        if point is None:
            break
        factor = point.feasible_factor(powers)
        utility = 0.5 * float(np.log1p(linalg.svdvals(root.T @ factor) ** 2).sum()) / len(root) / BIT
        bound = point.value / len(root) / BIT
        gap = bound - utility
        if abs(gap) <= tolerance_bits:
            return Optimum(factor @ factor.T, utility, bound, factor.shape[1])
        point = _step(root, powers, point)
    raise ValueError(
        f"the gap to the optimum stays at {gap:.3g} bits per client, beyond {tolerance_bits:g}: the covariance is too "
        "ill-conditioned for float64; allow a larger tolerance or merge clients that are nearly equal"
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
    apart = np.subtract.outer(eigenvalues, eigenvalues)
    near = np.abs(apart) <= 1e-9 * np.add.outer(np.abs(eigenvalues), np.abs(eigenvalues))
    derivative = np.where(eigenvalues > 1.0, 1.0 / np.maximum(eigenvalues, 1.0) ** 2, 0.0)
    middle = 0.5 * np.add.outer(derivative, derivative)
    return np.where(near, middle, np.subtract.outer(shares, shares) / np.where(near, 1.0, apart))


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
