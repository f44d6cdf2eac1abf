"""Case 3 by constrained numeric search, as Zeng et al. 2022 solved it, with their constraint or the correct one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import optimize

from leakbound.theory.budget import check_budget
from leakbound.theory.exchangeable import Exchangeable, exchangeable_privacy_bits, exchangeable_utility_bits
from leakbound.theory.printed import joint_bracket

_SLACK = 1e-9  # of the constraints, in bits or as part of 2^(2ε)
_EDGE = 1.0 - 1e-9  # how close to the edge of covariances the box reaches
_FLOOR, _CEILING = 1e-3, 1e4  # of σ², in units of what independent noise needs and of the parameters' variance


@dataclass(frozen=True)
class Found:
    """What a search ended with.

    Args:
        noise: The best noise that met the constraint.
        utility_bits: Its utility, bits per client.
        privacy_bits: What it tells about one client in truth, whatever constraint the search was given.
    """

    noise: Exchangeable
    utility_bits: float
    privacy_bits: float


def search_exchangeable_noise(
    signal: Exchangeable,
    mi_budget_bits: float,
    *,
    as_printed: bool = False,
    least_variance: float | None = None,
    reach: float | None = None,
) -> Found:
    """Exchangeable noise of greatest utility within a budget, by sequential quadratic programming from several starts.

    Over ln σ² and r = (n − 1) σ_e²/σ². The true optimum has a closed form, so this serves to check it, and to see what
    a search makes of the printed constraint, or of a box that leaves the optimum out.

    Args:
        signal: Covariance of the clients' parameters.
        mi_budget_bits: ε, in (0, 500].
        as_printed: With the paper's Eq. (24) as the constraint, where its logarithm exists, instead of the correct one.
        least_variance: Lower end of the box for σ²; by default one that leaves the optimum in.
        reach: Largest |r| of the box, in (0, 1), where at r = −1 all clients together would have no noise; by default
            every r that a covariance can have.

    Raises:
        ValueError: If ε, ``least_variance`` or ``reach`` is outside, or no start led to noise within the constraint.

    Source:
        Zeng et al. 2022, Section 3.3, where a solver's default settings are used; start and box are not stated.
    """
    check_budget(mi_budget_bits)
    if reach is not None and not 0.0 < reach < 1.0:
        raise ValueError(f"reach = {reach}: the box of r is symmetric and within (0, 1)")
    needed = signal.conditional_variance * 4.0**-mi_budget_bits
    least = _FLOOR * needed if least_variance is None else least_variance
    if not 0.0 < least < _CEILING * signal.variance:
        raise ValueError(f"least_variance = {least}: between 0 and {_CEILING * signal.variance:g}")
    program = _Program(signal, mi_budget_bits, as_printed)
    low, high = (-_EDGE, _EDGE * (signal.n_clients - 1)) if reach is None else (-reach, reach)
    box = optimize.Bounds([math.log(least), low], [math.log(_CEILING * signal.variance), high], keep_feasible=True)
    found = [
        program.solve(np.array([math.log(start), r]), box)
        for start in np.geomspace(max(least, needed / 4.0), 4.0 * max(signal.conditional_variance, least), 4)
        for r in (low / 2.0, 0.0, min(high / 2.0, 0.5))
    ]
    allowed = [noise for noise in found if program.room(noise).min() >= -_SLACK]
    if not allowed:
        raise ValueError(f"no start led to noise within the constraint for ε = {mi_budget_bits} bits; widen the box")
    best = max(allowed, key=lambda noise: exchangeable_utility_bits(signal, noise))
    return Found(best, exchangeable_utility_bits(signal, best), exchangeable_privacy_bits(signal, best))


@dataclass(frozen=True)
class _Program:
    """The constrained problem in the search's coordinates."""

    signal: Exchangeable
    mi_budget_bits: float
    as_printed: bool

    def noise(self, point: Float[np.ndarray, " 2"]) -> Exchangeable:
        """Noise at (ln σ², r)."""
        variance, others = math.exp(point[0]), self.signal.n_clients - 1
        return Exchangeable(variance, variance * float(point[1]) / others, others + 1)

    def room(self, noise: Exchangeable) -> Float[np.ndarray, " constraints"]:
        """What is left of each constraint; negative where it is broken."""
        if not self.as_printed:
            return np.array([self.mi_budget_bits - exchangeable_privacy_bits(self.signal, noise)])
        own = self.signal.variance + (self.signal.n_clients - 2) * self.signal.covariance
        argument = joint_bracket(self.signal, noise, as_printed=True) / (own * noise.joint * noise.difference)
        # Far enough above 0 for the logarithm to exist whatever the solver's rounding.
        return np.array([1.0 - argument / 4.0**self.mi_budget_bits, argument - 10.0 * _SLACK])

    def solve(self, start: Float[np.ndarray, " 2"], box: optimize.Bounds) -> Exchangeable:
        """Where one start leads."""
        result = optimize.minimize(
            lambda point: -exchangeable_utility_bits(self.signal, self.noise(point)),
            start,
            method="SLSQP",
            bounds=box,
            constraints={"type": "ineq", "fun": lambda point: self.room(self.noise(point))},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        return self.noise(np.clip(result.x, box.lb, box.ub))
