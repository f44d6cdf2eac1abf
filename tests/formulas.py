"""Published formulas that no command needs, to compare the library with."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy import linalg
from scipy.optimize import brentq

from leakbound.accounting.gaussian import log_determinant, log_expm1
from leakbound.channels.calibration import AIM, representable
from leakbound.channels.printed_bound import printed_scale


def white_scale(dimension: int, capacity: float) -> float:
    """Scale of white noise for a covariance of full rank in closed form, 1 / (e^{2κ/d} − 1)."""
    if dimension < 1 or not 0 < capacity < math.inf:
        raise ValueError(f"dimension = {dimension} must be >= 1 and capacity = {capacity} positive and finite")
    return representable(-float(log_expm1(2.0 * capacity / dimension)), capacity)


def printed_capacity(bound: Mapping[str, np.ndarray], scale: float, *, per_index: bool = False) -> float:
    """Published upper bound U(σ) on the capacity of noise σ diag(β), in nats, with its misprinted quotient corrected.

    U = ½ {min[Σ ln(c_i + σβ_i), Σ ln(u_i + σk_i)] − Σ ln(σβ_i)}. With ``per_index`` the smaller of the two terms for
    every pixel, which is valid too and never larger.
    """
    marginal = np.log1p(bound["variances"] / (scale * bound["weights"]))
    predicted = np.log(bound["predictors"] / bound["weights"])
    predicted = predicted + np.log1p(bound["innovations"] / (scale * bound["predictors"]))
    return 0.5 * float(np.minimum(marginal, predicted).sum() if per_index else min(marginal.sum(), predicted.sum()))


def per_index_scale(bound: Mapping[str, np.ndarray], capacity: float) -> float:
    """Smallest σ at which the tighter of the published bounds, that for every pixel, is at most κ."""

    def excess(log_scale: float) -> float:
        reached = printed_capacity(bound, math.exp(log_scale), per_index=True)
        return math.log(reached) - math.log(capacity * AIM)

    upper = printed_scale(bound, capacity)
    high = math.log(upper)
    if excess(high) >= 0:  # both bounds agree at the root
        return upper
    low, stride = high - 1.0, 1.0
    while excess(low) < 0:
        low, stride = low - stride, 2.0 * stride
    return math.exp(brentq(excess, low, high, xtol=1e-13, rtol=8.9e-16))


def kl_divergence(mean_p: np.ndarray, covariance_p: np.ndarray, mean_q: np.ndarray, covariance_q: np.ndarray) -> float:
    """KL divergence D(P ‖ Q) of two Gaussians, in nats: ½ [tr(Q⁻¹P) − d + Δᵀ Q⁻¹ Δ + ln det Q − ln det P]."""
    determinants = log_determinant(covariance_q) - log_determinant(covariance_p)
    factor = np.linalg.cholesky(covariance_q)
    spread = linalg.solve_triangular(factor, np.linalg.cholesky(covariance_p), lower=True)
    shift = linalg.solve_triangular(factor, mean_p - mean_q, lower=True)
    return 0.5 * float((spread**2).sum() - len(mean_p) + shift @ shift + determinants)
