"""Share of records that is left behind a channel, and the nats at which half of it would be."""

from collections.abc import Callable

from scipy.optimize import brentq

from leakbound.channels.shapes import shape_named
from leakbound.engine.targets import Calibration

_HALF = 0.5


def recovered(calibration: Calibration, uses: int) -> float:
    """Compute the share of a record's variance that the best linear estimate from all its copies recovers.

    Args:
        calibration: Channel and the data that it was calibrated to.
        uses: Copies, each with its own noise.
    """
    return 1.0 - calibration.linear_error(uses) / calibration.linear_error(0)


def visible(calibration: Calibration, uses: int) -> float:
    """Compute the share of the variance of the mean of all copies, value by value, that is not noise.

    Args:
        calibration: As in :func:`recovered`.
        uses: Copies, each with its own noise.
    """
    channel = calibration.channel
    if channel.gain is not None:  # it shrinks what it cannot show, so that values never look noisy
        return 1.0
    signal = calibration.linear_error(0)
    return signal / (signal + float(channel.pixel_variances().mean()) / uses)


def nats_for_half(share: Callable[[Calibration, int], float], calibration: Calibration, uses: int) -> float:
    """Find the nats of all copies at which a share is one half.

    Args:
        share: Share that grows with the capacity, such as :func:`recovered`, below one half for
            ``calibration``.
        calibration: Channel and the data that it was calibrated to.
        uses: Copies, each with its own noise.

    Returns:
        Nats that all copies together reveal at most.
    """
    shape = shape_named(calibration.channel.shape)

    def made(doublings: float) -> Calibration:
        channel = shape.calibrate(calibration.spectrum, calibration.information(1) * 2.0**doublings)
        return Calibration(channel, calibration.spectrum, calibration.moments)

    high = 1.0
    while share(made(high), uses) < _HALF:
        high += 1.0
    root = brentq(lambda doublings: share(made(doublings), uses) - _HALF, 0.0, high, xtol=1e-4)
    return float(made(root).information(uses))
