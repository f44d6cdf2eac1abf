"""Privacy channels in data space: moments of the data, shapes of noise, calibration to a capacity.

Sampling, which needs torch, is in :mod:`leakbound.channels.sampling`.
"""

from leakbound.channels.calibration import noise_scale
from leakbound.channels.channel import GaussianChannel, Spectrum, channel_capacity, signal_to_noise
from leakbound.channels.composition import composed_capacity
from leakbound.channels.compression import PrincipalDirection, principal_direction
from leakbound.channels.covariance import Moments, estimate_moments, population_moments
from leakbound.channels.randomized_response import RandomizedResponse
from leakbound.channels.shapes import (
    LeastPower,
    Natural,
    Personalized,
    PersonalizedPrinted,
    RateDistortion,
    Shape,
    White,
    box_weights,
)

__all__ = [
    "GaussianChannel",
    "LeastPower",
    "Moments",
    "Natural",
    "Personalized",
    "PersonalizedPrinted",
    "PrincipalDirection",
    "RandomizedResponse",
    "RateDistortion",
    "Shape",
    "Spectrum",
    "White",
    "box_weights",
    "channel_capacity",
    "composed_capacity",
    "estimate_moments",
    "noise_scale",
    "population_moments",
    "principal_direction",
    "signal_to_noise",
]
