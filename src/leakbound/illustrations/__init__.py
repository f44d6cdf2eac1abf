"""Rows of figures that need no training: closed forms, spectra, and what channels do to pictures.

Every function takes an illustration's settings and returns a tidy table with the columns ``metric`` and ``value`` and
those that say what was measured. Capacities are in nats, variances in squared pixel units of the scale [-1, 1].
"""

from leakbound.illustrations.closed_forms import capacity_surface, compression, toy_example, weights
from leakbound.illustrations.costs import leakage, personalized_cost, shapes
from leakbound.illustrations.pictures import noisy_images

__all__ = [
    "capacity_surface",
    "compression",
    "leakage",
    "noisy_images",
    "personalized_cost",
    "shapes",
    "toy_example",
    "weights",
]
