"""The three cases of Zeng et al. 2022: solved exactly, as printed, and by constrained search as in the paper.

Budgets ε are in (0, 500] bits. Every function raises a ``ValueError`` for others.

In case 3, Eqs. (22) and (24), det Cov(Yⁿ, X⁻ⁱ) factors into (σ_m² − σ_k²)^{n−2} (σ² − σ_e²)^{n−2} and a
bracket. The printed bracket A + B + C + D is correct for independent parameters only. With it as the
constraint, the search for the best noise has no solution and returns the edge of the region that it searches.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import optimize

from leakbound_lab.papers.zeng2022.releases import BIT, Exchangeable, Release, allowed_ratio, check_budget

_SLACK = 1e-9  # of the constraints, in bits or as a share of 2^(2ε)
_EDGE = 1.0 - 1e-9  # how close to the edge of covariances the region reaches
_FLOOR = 1e-3  # of σ², in units of what independent noise needs
_CEILING = 1e4  # of σ², in units of the parameters' variance


def common_noise_variance(variances: Float[np.ndarray, " n"], mi_budget_bits: float) -> float:
    """Compute the least noise variance of case 1: equal for all clients, with each within its budget.

    Parameters and noise are independent, and σ² = max_i s_i / (2^{2ε} − 1).

    Args:
        variances: s_i, variances of the clients' parameters, each > 0.
        mi_budget_bits: ε, bits, the budget of every client.

    Raises:
        ValueError: If a variance is not positive and finite.

    Source:
        Zeng et al. 2022, Theorem 1.
    """
    _check_variances(variances)
    return float(variances.max()) / allowed_ratio(mi_budget_bits)


def common_noise_utility_bits(variances: Float[np.ndarray, " n"], mi_budget_bits: float) -> float:
    """Compute the utility of :func:`common_noise_variance`, bits per client.

    It is (1/2n) Σ_i log₂[1 + s_i (2^{2ε} − 1)/max s].

    Args:
        variances: s_i, variances of the clients' parameters, each > 0.
        mi_budget_bits: ε, bits, the budget of every client.

    Raises:
        ValueError: If a variance is not positive and finite.

    Source:
        Zeng et al. 2022, Eq. (9).
    """
    _check_variances(variances)
    ratios = variances / variances.max() * allowed_ratio(mi_budget_bits)
    return 0.5 * float(np.log1p(ratios).mean()) / BIT


def own_noise_variances(variances: Float[np.ndarray, " n"], mi_budget_bits: float) -> Float[np.ndarray, " n"]:
    """Compute each client's noise variance in case 1 that spends exactly its budget, s_i / (2^{2ε} − 1).

    A common variance protects all clients but the one of largest variance more than their budgets require.
    With this noise the utility is ε, the largest possible without dependence.

    Args:
        variances: s_i, variances of the clients' parameters, each > 0.
        mi_budget_bits: ε, bits, the budget of every client.

    Raises:
        ValueError: If a variance is not positive and finite.
    """
    _check_variances(variances)
    return variances / allowed_ratio(mi_budget_bits)


def independent_noise(
    signal: Exchangeable, mi_budget_bits: float, *, as_printed: bool = False
) -> Exchangeable:
    """Compute the least independent noise of case 2, in which parameters depend on each other.

    It is σ² = v / (2^{2ε} − 1). Here v = σ_m² − (n − 1) σ_k⁴ / (σ_m² + (n − 2) σ_k²) is a client's variance
    once all others are known.

    Args:
        signal: Covariance of the clients' parameters.
        mi_budget_bits: ε, bits, the budget of every client.
        as_printed: Use the sign of the paper, σ_m² + (n − 1) σ_k⁴ / …, which adds more noise than the budget
            requires.

    Source:
        Zeng et al. 2022, Theorem 2 and Eq. (14). The correct sign follows from their own Eq. (13).
    """
    n = signal.n_clients
    variance = signal.variance
    covariance = signal.covariance
    left = signal.conditional_variance
    if as_printed:
        left = variance + (n - 1) * covariance**2 / (variance + (n - 2) * covariance)
    return Exchangeable(left / allowed_ratio(mi_budget_bits), 0.0, n)


@dataclass(frozen=True)
class ExchangeableOptimum:
    """Noise of greatest utility within a budget.

    Args:
        joint_precision: 1/z_a, precision of the joint direction of all clients, 0 if it is not released.
        difference_precision: 1/z_b, precision of the differences between clients, 0 if they are not released.
        utility_bits: Utility, bits per client.
        noise: Covariance of the noise, or None if an eigenvalue is infinite.
    """

    joint_precision: float
    difference_precision: float
    utility_bits: float
    noise: Exchangeable | None


def optimal_exchangeable_noise(signal: Exchangeable, mi_budget_bits: float) -> ExchangeableOptimum:
    """Compute the exchangeable noise of greatest utility in case 3 that keeps every client within its budget.

    The budget is linear in the noise's precisions q_a = 1/z_a and q_b = 1/z_b, q_a + (n − 1) q_b <= n (2^{2ε}
    − 1)/v, and the utility is concave in them. So the optimum is water-filling over two eigenvalues, q_j =
    1/level − 1/x_j where that is positive, and else 0. Above a threshold of the budget 1/z_j = 2^{2ε}/v −
    1/x_j. Given the release the clients are then independent, and the utility is ε + DTC/n, the cap of all
    mechanisms. Below the threshold only the larger mode is released.

    Args:
        signal: Covariance of the clients' parameters.
        mi_budget_bits: ε, bits, the budget of every client.

    Returns:
        The optimum. The covariance of the noise between clients has the opposite sign of that of the
        parameters.

    Source:
        Zeng et al. 2022, Section 3.3, who search for it.
    """
    n = signal.n_clients
    v = signal.conditional_variance
    ratio = allowed_ratio(mi_budget_bits)
    modes = ((signal.joint, 1), (signal.difference, n - 1))
    # 2^{2ε}/v − 1/x_j = ratio/v + (1/v − 1/x_j); the bracket is a share of 1/x_b − 1/x_a, here without subtracting.
    tilt = n * signal.covariance / signal.joint / signal.difference
    precisions = [ratio / v + (n - 1) / n * tilt, ratio / v - tilt / n]
    if min(precisions) <= 0.0:
        strong = 0 if signal.joint >= signal.difference else 1
        precisions = [0.0, 0.0]
        precisions[strong] = n * ratio / v / modes[strong][1]
    joint, difference = precisions
    noise = None
    if min(precisions) > 0.0:
        covariance = (
            -tilt / joint / difference / n
        )  # from the difference of the precisions, −tilt, which loses no digits
        noise = Exchangeable(1.0 / difference + covariance, covariance, n)
    total = sum(count * math.log1p(x * q) for (x, count), q in zip(modes, precisions, strict=True))
    return ExchangeableOptimum(joint, difference, 0.5 * total / n / BIT, noise)


def _check_variances(variances: Float[np.ndarray, " n"]) -> None:
    """Check that there are variances, all positive and finite."""
    if variances.size == 0:
        raise ValueError("variances: is empty; give one for each client")
    wrong = ~((variances > 0) & np.isfinite(variances))
    if wrong.any():
        client = int(np.argmax(wrong))
        raise ValueError(f"variances[{client}] = {variances[client]}: a client's variance is > 0 and finite")


def printed_argument(release: Release) -> float:
    """Compute the argument of the logarithm in Eq. (24): A + B + C + D over the correct denominator.

    It can be negative.
    """
    signal = release.signal
    conditioned = signal.variance + (signal.n_clients - 2) * signal.covariance
    bracket = printed_bracket(release, (-1) ** (signal.n_clients + 1))
    return bracket / (conditioned * release.noise.joint * release.noise.difference)


def printed_privacy_bits(release: Release) -> float:
    """Compute I(X_i; Yⁿ | X⁻ⁱ) by Eq. (24), in bits, NaN if the argument of the logarithm is not positive."""
    argument = printed_argument(release)
    return 0.5 * math.log(argument) / BIT if argument > 0.0 else math.nan


def printed_bracket(release: Release, sign: int) -> float:
    """Compute A + B + C + D with a given sign of B.

    The sign is (−1)^{n+1} in Eq. (24), and −1 in Eq. (22) once its powers are collected.
    """
    n = release.signal.n_clients
    a = release.signal.variance
    b = release.signal.covariance
    s = release.noise.variance
    e = release.noise.covariance
    first = (a + s) * (s - e) * (a - b)
    second = sign * (n - 1) * e * (e - a - s) * (a - b)
    third = (n - 1) * b**2 * (e - s)
    fourth = (n - 1) ** 2 * e * b * (a + s - b - e)
    return first + second + third + fourth


def search_exchangeable_noise(
    signal: Exchangeable,
    mi_budget_bits: float,
    *,
    as_printed: bool = False,
    least_variance: float | None = None,
    reach: float | None = None,
) -> Release:
    """Search for exchangeable noise of greatest utility within a budget, from several starts.

    The search is sequential quadratic programming over ln σ² and r = (n − 1) σ_e²/σ². The true optimum has a
    closed form. The search serves to check it, and to show the results of the printed constraint and of a
    region that excludes the optimum.

    Args:
        signal: Covariance of the clients' parameters.
        mi_budget_bits: ε, bits, in (0, 500].
        as_printed: Use the paper's Eq. (24) as the constraint, where its logarithm exists, instead of the
            correct one.
        least_variance: Lower end of the region for σ². Default: one that includes the optimum.
        reach: Largest magnitude of r in the region, in (0, 1). At r = −1 the joint direction would have no noise.
            Default: every r that a covariance can have.

    Returns:
        The release with the best noise that met the constraint. Its ``privacy_bits`` is the true value,
        whichever constraint the search used.

    Raises:
        ValueError: If ε or ``least_variance`` is out of range, or no start led to noise within the
            constraint.

    Source:
        Zeng et al. 2022, Section 3.3, where a solver's default settings are used. Start and region are not
        stated.
    """
    check_budget(mi_budget_bits)
    needed = signal.conditional_variance * 4.0**-mi_budget_bits
    least = _FLOOR * needed if least_variance is None else least_variance
    if not 0.0 < least < _CEILING * signal.variance:
        raise ValueError(f"least_variance = {least}: between 0 and {_CEILING * signal.variance:g}")
    other_clients = signal.n_clients - 1
    low, high = (-_EDGE, _EDGE * other_clients) if reach is None else (-reach, reach)
    region = optimize.Bounds(
        [math.log(least), low], [math.log(_CEILING * signal.variance), high], keep_feasible=True
    )

    def release(point: Float[np.ndarray, " 2"]) -> Release:
        variance = math.exp(point[0])
        return Release(
            signal, Exchangeable(variance, variance * float(point[1]) / other_clients, other_clients + 1)
        )

    def room(reached: Release) -> Float[np.ndarray, " constraints"]:
        # The slack of each constraint, negative if it is violated.
        if not as_printed:
            return np.array([mi_budget_bits - reached.privacy_bits])
        argument = printed_argument(reached)
        # Far enough above 0 for the logarithm to exist whatever the solver's rounding.
        return np.array([1.0 - argument / 4.0**mi_budget_bits, argument - 10.0 * _SLACK])

    def solve(start: Float[np.ndarray, " 2"]) -> Release:
        result = optimize.minimize(
            lambda point: -release(point).utility_bits,
            start,
            method="SLSQP",
            bounds=region,
            constraints={"type": "ineq", "fun": lambda point: room(release(point))},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        return release(np.clip(result.x, region.lb, region.ub))

    releases = [
        solve(np.array([math.log(start), r]))
        for start in np.geomspace(max(least, needed / 4.0), 4.0 * max(signal.conditional_variance, least), 4)
        for r in (low / 2.0, 0.0, min(high / 2.0, 0.5))
    ]
    allowed = [reached for reached in releases if room(reached).min() >= -_SLACK]
    if not allowed:
        raise ValueError(
            f"no start led to noise within the constraint for ε = {mi_budget_bits} bits; widen the region"
        )
    return max(allowed, key=lambda reached: reached.utility_bits)
