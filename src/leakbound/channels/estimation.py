"""Best linear estimate of records behind a channel, for an attacker who knows the channel and the moments."""

import numpy as np
from jaxtyping import Float
from scipy import linalg

from leakbound.channels.channel import GaussianChannel
from leakbound.channels.covariance import Moments

_NEGLIGIBLE = 1e-12


def linear_estimate(
    released: Float[np.ndarray, "n colors height width"], channel: GaussianChannel, moments: Moments
) -> Float[np.ndarray, "n colors height width"]:
    """Estimate records from their noisy versions: E[D] + Cov(D, D̃) Cov(D̃)⁻¹ (D̃ - E[D̃]).

    This is the best linear estimate. For Gaussian data it is the posterior mean, and no attack on anything
    computed from D̃ does better. For any data its mean squared error is Σ λσ/(λ + σ) with additive noise
    along the principal axes.

    Args:
        released: Noisy records D̃.
        channel: Channel that released them.
        moments: Mean and covariance of the records.

    Returns:
        Estimates, float32, not clipped to [-1, 1].

    Raises:
        ValueError: If channel, moments and images differ in dimension.
    """
    if not channel.dimension == moments.dimension == released[0].size:
        raise ValueError(
            f"images have {released[0].size} values, the channel {channel.dimension}, the moments {moments.dimension}; "
            "take all three from one dataset"
        )
    basis, mean = channel.basis, moments.mean
    gain = np.ones(len(mean)) if channel.gain is None else channel.gain
    centre = mean if channel.mean is None else channel.mean
    signal = moments.covariance if basis is None else basis.T @ moments.covariance @ basis
    total = gain[:, None] * signal * gain + np.diag(channel.variances)
    # Axes in which nothing varies tell nothing, and would make Cov(D̃) singular.
    live = np.diag(total) > _NEGLIGIBLE * np.diag(total).max()
    expected = _along(centre[None], basis) + gain * _along((mean - centre)[None], basis)
    observed = _along(released.reshape(len(released), -1).astype(np.float64), basis) - expected
    factor = linalg.cho_factor(total[np.ix_(live, live)], lower=True)
    weights = linalg.cho_solve(factor, observed[:, live].T).T
    estimate = (weights * gain[live]) @ signal[live]
    pixels = estimate if basis is None else estimate @ basis.T
    return (mean + pixels).reshape(released.shape).astype(np.float32)


def _along(
    records: Float[np.ndarray, "n d"], basis: Float[np.ndarray, "d d"] | None
) -> Float[np.ndarray, "n d"]:
    """Compute coordinates along the columns of ``basis``, or return the pixels themselves without a basis."""
    return records if basis is None else records @ basis
