"""Privacy channels in data space: moments of the data, shapes of noise, calibration to a capacity.

Sampling, which needs torch, is in :mod:`leakbound.channels.sampling`.
"""

from leakbound.channels.calibration import noise_scale as noise_scale
from leakbound.channels.channel import GaussianChannel as GaussianChannel
from leakbound.channels.channel import Spectrum as Spectrum
from leakbound.channels.channel import channel_capacity as channel_capacity
from leakbound.channels.channel import signal_to_noise as signal_to_noise
from leakbound.channels.composition import composed_capacity as composed_capacity
from leakbound.channels.compression import PrincipalDirection as PrincipalDirection
from leakbound.channels.compression import principal_direction as principal_direction
from leakbound.channels.covariance import Moments as Moments
from leakbound.channels.covariance import estimate_moments as estimate_moments
from leakbound.channels.covariance import population_moments as population_moments
from leakbound.channels.randomized_response import RandomizedResponse as RandomizedResponse
from leakbound.channels.shapes import LeastPower as LeastPower
from leakbound.channels.shapes import Natural as Natural
from leakbound.channels.shapes import Personalized as Personalized
from leakbound.channels.shapes import PersonalizedPrinted as PersonalizedPrinted
from leakbound.channels.shapes import RateDistortion as RateDistortion
from leakbound.channels.shapes import Shape as Shape
from leakbound.channels.shapes import White as White
from leakbound.channels.shapes import box_weights as box_weights
