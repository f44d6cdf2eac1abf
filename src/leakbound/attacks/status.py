"""Validity of attacks that optimise: when one is no result, how it is started again, and when its own grid binds.

An attack that never moved tells nothing about a defense, and its start would count as its success or failure. Such a
result has no value; its row says why.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from leakbound.attacks.images import LARGEST_PIXEL

STUCK = "stuck"
"""The objective has no slope at any start that was tried, or the iterate ended where it began: no value."""
NOT_CONVERGED = "not_converged"
"""The objective is no lower at the end than at the start: no value."""
DIVERGED = "diverged"
"""The attacked weights or the iterate are not finite: no value."""
GRID_EDGE = "grid_edge"
"""The best setting is at an edge of the attacker's grid after all extensions: the value stands, as a warning."""
NO_RESULT = (STUCK, NOT_CONVERGED, DIVERGED)
"""Statuses of rows without a value."""
RESTARTS = 3
"""Jittered starts after the first one."""
EXTENSIONS = 3
"""Factors of 10 by which a grid that binds is extended at one end."""

_JITTER = 0.1  # standard deviation of the first jitter on the networks' scale; each next one has twice as much
_MATERIAL = 0.01  # share of the error by which an edge is better than all that lies inside, else it does not bind


def jittered(
    start: Float[Tensor, "n colors height width"], attempt: int, generator: torch.Generator
) -> Float[Tensor, "n colors height width"]:
    """Starts with Gaussian noise on them, kept inside [-1, 1].

    Args:
        start: First starts.
        attempt: 1 for the first restart; each next one jumps twice as far.
        generator: On the CPU; draws the noise.
    """
    noise = torch.randn(start.shape, generator=generator, dtype=start.dtype).to(start.device)
    return (start + _JITTER * 2 ** (attempt - 1) * noise).clamp(-LARGEST_PIXEL, LARGEST_PIXEL)


def largest_binds(errors: Sequence[float]) -> bool:
    """True if the last setting of a grid is best, by more than a hundredth of the error.

    Args:
        errors: Error of each setting in the order of the grid, infinite or NaN where it gave no result. A grid of one
            setting does not bind: nothing else was asked for.
    """
    inside = [error for error in errors[:-1] if error == error]
    return bool(inside) and errors[-1] < (1 - _MATERIAL) * min(inside)
