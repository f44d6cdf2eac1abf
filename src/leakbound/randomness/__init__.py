"""Where privacy noise comes from, seeded or secure, and how it is added to what it protects; docs/noise.md says why."""

from leakbound.randomness.cipher import keystream
from leakbound.randomness.grid import grid_spacing, perturbed, to_grid
from leakbound.randomness.sources import (
    NoiseSource,
    SecureDraws,
    SecureNoise,
    SeededNoise,
    as_source,
    check_origin,
    noise_source,
)

__all__ = [
    "NoiseSource",
    "SecureDraws",
    "SecureNoise",
    "SeededNoise",
    "as_source",
    "check_origin",
    "grid_spacing",
    "keystream",
    "noise_source",
    "perturbed",
    "to_grid",
]
