"""Mean and median over replicas, each with its 95 % interval."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """An estimate with the ends of its 95 % interval, NaN where the replicas allow none."""

    value: float
    low: float
    high: float


def mean_interval(values: Float[np.ndarray, " replicas"]) -> Estimate:
    """Estimate the mean over replicas, with Student's t interval.

    Args:
        values: One number for each replica.

    Returns:
        The mean and the ends of its 95 % interval in the unit of the values. The ends are NaN for a single
        value.

    Raises:
        ValueError: If there is no value, or one is not finite.
    """
    from scipy import stats

    _check(values)
    mean = float(np.mean(values))
    if len(values) == 1:
        return Estimate(mean, math.nan, math.nan)
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(stats.t.ppf(0.5 + _CONFIDENCE / 2, len(values) - 1)) * error
    return Estimate(mean, mean - half, mean + half)


def median_interval(values: Float[np.ndarray, " replicas"]) -> Estimate:
    """Estimate the median over replicas, with the exact interval between two order statistics.

    The function serves quantities without a lower bound. Fewer than 6 values allow no such interval of 95 %.
    The interval is then the whole range, which contains the median with probability 1 − 2^(1−n).

    Args:
        values: One number for each replica.

    Returns:
        The median and the ends of its interval in the unit of the values. The ends are NaN for a single
        value.

    Raises:
        ValueError: If there is no value, or one is not finite.
    """
    from scipy import stats

    _check(values)
    median = float(np.median(values))
    if len(values) == 1:
        return Estimate(median, math.nan, math.nan)
    ends = stats.quantile_test(values, q=median, p=0.5).confidence_interval(_CONFIDENCE)
    low = float(ends.low) if math.isfinite(ends.low) else float(values.min())
    high = float(ends.high) if math.isfinite(ends.high) else float(values.max())
    return Estimate(median, low, high)


def _check(values: np.ndarray) -> None:
    """Refuse an empty array, and values that are not finite."""
    if len(values) == 0 or not np.isfinite(values).all():
        raise ValueError(
            f"{len(values)} values, some not finite: leave out diverged replicas before summarising"
        )
