"""Error of a noisy sum before it is rounded to the grid, as docs/noise.md bounds it, against 40 digits."""

import itertools
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from scipy import integrate

from leakbound.randomness.sources import box_muller

PAGE = Path(__file__).parents[2] / "docs" / "noise.md"
STATED = "e ≤ 2⁻⁴⁸·⁸ rσ + 2⁻⁵³ σ/r + 2⁻⁵³ |x|"
ON_AVERAGE = "2⁻⁴⁵·⁵ σ + 2⁻⁵³ |x|"
RADII = {"usual": (0, 62), "far": (0, 8), "near 0.001": (2**63 - 2**43, 42), "near 0": (2**63 - 2**12, 12)}
"""Where radii lie, to the least of the first words and the binary digits above it."""
STD, COUNT = 0.37, 300


def errors(place: str, signal: float) -> list[tuple[float, float]]:
    """Radius and error over σ of sums with the noise of some pairs, added as ``perturbed`` adds it."""
    least, bits = RADII[place]
    words = np.random.default_rng(0).integers(-(2**63), 2**63, (3, COUNT), dtype=np.int64)
    words[0] = (words[0] & (2**bits - 1)) + least
    before = torch.full((2 * COUNT,), signal, dtype=torch.float32).double()
    noise = box_muller(words)
    found = torch.add(before, torch.from_numpy(noise), alpha=STD).tolist()
    pairs = []
    with mpmath.workdps(40):
        for index in range(COUNT):
            first, second, third = (int(word) for word in words[:, index])
            low = (mpmath.mpf(second & (2**63 - 1)) + mpmath.mpf(1) / 2) / 2**63
            radius = mpmath.sqrt(-2 * mpmath.log((mpmath.mpf(first & (2**63 - 1)) + low) / 2**63))
            angle = mpmath.pi * third / 2**63
            for number, part in ((index, mpmath.cos(angle)), (COUNT + index, mpmath.sin(angle))):
                assert abs(noise[number] - radius * part) <= radius * 2**-49 + 2**-53 / radius  # of the transform alone
                exact = mpmath.mpf(float(before[0])) + STD * radius * part
                pairs.append((float(radius), float(abs(found[number] - exact) / STD)))
    return pairs


@pytest.mark.parametrize("signal", [0.0, 0.7, -1.0, 30.0])
@pytest.mark.parametrize("place", RADII)
def test_error_of_a_noisy_sum_is_within_the_stated_bound(place, signal):
    assert STATED in PAGE.read_text(encoding="utf-8").replace("\n", " ")
    rounding = 2.0**-53 * abs(float(np.float32(signal))) / STD
    for radius, error in errors(place, signal):
        assert error <= 2**-48.8 * radius + 2.0**-53 / radius + rounding


def test_mean_error_over_the_other_number_of_a_pair_is_within_the_stated_bound():
    """Whatever the noise within 9 standard deviations; below 2⁻²⁶·⁵ the radius itself bounds the error."""
    assert ON_AVERAGE in PAGE.read_text(encoding="utf-8").replace("\n", " ")

    def weighed(other: float, noise: float) -> float:
        radius = math.hypot(noise, other)
        near = min(2.0**-53 / radius, 2**-26.5) if radius else 2**-26.5
        return math.exp(-(other**2) / 2) / math.sqrt(2 * math.pi) * (2**-48.8 * radius + near) * 2**45

    places = [0.0, *(10.0**power for power in range(-9, 1)), 9.0]
    edges = [0.0, *(10.0**power for power in range(-10, 2))]
    for noise in places:
        mean = 2 * sum(integrate.quad(weighed, *piece, args=(noise,))[0] for piece in itertools.pairwise(edges))
        assert mean <= 2**-0.5
    assert mean > 2**-0.7  # the last place, 9: the bound is not loose
