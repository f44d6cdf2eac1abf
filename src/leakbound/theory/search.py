"""Case 3 by constrained numeric search, as in Zeng et al. 2022, with their constraint or the correct one."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import optimize

from leakbound.theory.budget import check_budget
from leakbound.theory.determinants import printed_argument
from leakbound.theory.exchangeable import Exchangeable, Release

_SLACK = 1e-9  # of the constraints, in bits or as a share of 2^(2ε)
_EDGE = 1.0 - 1e-9  # how close to the edge of covariances the region reaches
_FLOOR = 1e-3  # of σ², in units of what independent noise needs
_CEILING = 1e4  # of σ², in units of the parameters' variance


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
        reach: Largest |r| of the region, in (0, 1). At r = −1 the joint direction would have no noise.
            Default: every r that a covariance can have.

    Returns:
        The release with the best noise that met the constraint. Its ``privacy_bits`` is the true value,
        whichever constraint the search used.

    Raises:
        ValueError: If ε, ``least_variance`` or ``reach`` is out of range, or no start led to noise within the
            constraint.

    Source:
        Zeng et al. 2022, Section 3.3, where a solver's default settings are used. Start and region are not
        stated.
    """
    check_budget(mi_budget_bits)
    if reach is not None and not 0.0 < reach < 1.0:
        raise ValueError(f"reach = {reach}: the region of r is symmetric and within (0, 1)")
    needed = signal.conditional_variance * 4.0**-mi_budget_bits
    least = _FLOOR * needed if least_variance is None else least_variance
    if not 0.0 < least < _CEILING * signal.variance:
        raise ValueError(f"least_variance = {least}: between 0 and {_CEILING * signal.variance:g}")
    program = _Program(signal, mi_budget_bits, as_printed)
    low, high = (-_EDGE, _EDGE * (signal.n_clients - 1)) if reach is None else (-reach, reach)
    region = optimize.Bounds(
        [math.log(least), low], [math.log(_CEILING * signal.variance), high], keep_feasible=True
    )
    releases = [
        program.solve(np.array([math.log(start), r]), region)
        for start in np.geomspace(max(least, needed / 4.0), 4.0 * max(signal.conditional_variance, least), 4)
        for r in (low / 2.0, 0.0, min(high / 2.0, 0.5))
    ]
    allowed = [release for release in releases if program.room(release).min() >= -_SLACK]
    if not allowed:
        raise ValueError(
            f"no start led to noise within the constraint for ε = {mi_budget_bits} bits; widen the region"
        )
    return max(allowed, key=lambda release: release.utility_bits)


@dataclass(frozen=True)
class _Program:
    """The constrained problem in the search's coordinates."""

    signal: Exchangeable
    mi_budget_bits: float
    as_printed: bool

    def release(self, point: Float[np.ndarray, " 2"]) -> Release:
        """Make the release with the noise at (ln σ², r)."""
        variance, others = math.exp(point[0]), self.signal.n_clients - 1
        return Release(self.signal, Exchangeable(variance, variance * float(point[1]) / others, others + 1))

    def room(self, release: Release) -> Float[np.ndarray, " constraints"]:
        """Compute the slack of each constraint, negative if it is violated."""
        if not self.as_printed:
            return np.array([self.mi_budget_bits - release.privacy_bits])
        argument = printed_argument(release)
        # Far enough above 0 for the logarithm to exist whatever the solver's rounding.
        return np.array([1.0 - argument / 4.0**self.mi_budget_bits, argument - 10.0 * _SLACK])

    def solve(self, start: Float[np.ndarray, " 2"], region: optimize.Bounds) -> Release:
        """Find the release that one start leads to."""
        result = optimize.minimize(
            lambda point: -self.release(point).utility_bits,
            start,
            method="SLSQP",
            bounds=region,
            constraints={"type": "ineq", "fun": lambda point: self.room(self.release(point))},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        return self.release(np.clip(result.x, region.lb, region.ub))
