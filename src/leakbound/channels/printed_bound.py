"""The published calibration of personalized noise (Tan et al. 2024, Theorem 3), kept as a baseline.

The publication does not compute ln det(Σ_D + σ diag β). It bounds it from above by Hadamard's inequality, and
by predicting each pixel from the previous ones. Both bounds are valid and cost as much as the exact capacity.
"""

import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from scipy import linalg

from leakbound.accounting.gaussian import check_covariance
from leakbound.channels.calibration import AIM, check_capacity, noise_scale


def innovations(
    covariance: Float[np.ndarray, "d d"], weights: Float[np.ndarray, " d"]
) -> dict[str, Float[np.ndarray, " d"]]:
    """Compute the quantities of the published bound from one Cholesky factor L of the covariance.

    Args:
        covariance: Σ_D, positive definite, float64, squared pixel units.
        weights: β, each > 0.

    Returns:
        ``variances`` c_i = Σ_ii, ``innovations`` u_i = L_ii² (variance of pixel i that is left after
        predicting it from the previous ones), ``predictors`` k_i = Σ_j β_j (I − A)_ij² with I − A =
        diag(L_ii) L⁻¹, and ``weights`` β.

    Raises:
        ValueError: If the covariance is singular.
    """
    check_covariance(covariance)
    variances = np.diag(covariance).copy()
    try:
        factor = linalg.cholesky(covariance, lower=True)
        singular = bool(np.any(np.diag(factor) ** 2 <= len(factor) * np.finfo(np.float64).eps * variances))
    except linalg.LinAlgError:
        singular = True
    if singular:
        raise ValueError(
            "the published personalized bound needs a covariance of full rank, and this one is singular (constant "
            "pixels, or fewer images than pixels); use shape 'personalized', which is exact and needs no inverse"
        )
    inverse, _ = linalg.lapack.dtrtri(factor, lower=1)
    residuals = np.diag(factor)[:, None] * inverse
    return {
        "variances": variances,
        "innovations": np.diag(factor) ** 2,
        "predictors": residuals**2 @ weights,
        "weights": np.asarray(weights, dtype=np.float64),
    }


def printed_scale(bound: Mapping[str, Float[np.ndarray, " d"]], capacity: float) -> float:
    """Compute the smallest σ at which the published bound on the capacity is κ.

    The misprinted quotient of the publication is corrected.

    The bound is ½ {min[Σ ln(c_i + σβ_i), Σ ln(u_i + σk_i)] − Σ ln(σβ_i)}. Each of the two sums is a capacity
    for other eigenvalues: c_i/β_i, and u_i/k_i plus ½ Σ ln(k_i/β_i). Both fall in σ, so their minimum is κ at
    the smaller root.

    Args:
        bound: Result of :func:`innovations`.
        capacity: κ, nats per use, in [0, ∞].

    Returns:
        σ. The bound is never above κ and within 1e-9 of it. The true capacity is lower.

    Raises:
        ValueError: If ``capacity`` is negative or NaN.
    """
    check_capacity(capacity)
    scale = noise_scale(bound["variances"] / bound["weights"], capacity)
    floor = 0.5 * float(np.log(bound["predictors"] / bound["weights"]).sum())
    # The floor takes some of κ; aiming at κ·AIM − floor keeps the margin that noise_scale leaves.
    rest = capacity * AIM - floor
    return (
        min(scale, noise_scale(bound["innovations"] / bound["predictors"], rest))
        if 0 < rest < math.inf
        else scale
    )
