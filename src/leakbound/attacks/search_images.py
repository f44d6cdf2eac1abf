"""Searches for images: range of pixels, total variation, restarts of stuck searches, and grids that bind."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

LARGEST_PIXEL = 1.0
"""Largest absolute value of a pixel on the networks' scale."""
RESTARTS = 3
"""Jittered starts after the first one."""
EXTENSIONS = 3
"""Factors of 10 by which a grid that binds is extended at one end."""

_JITTER = 0.1  # standard deviation of the first jitter on the networks' scale, which doubles at each next one
_MATERIAL = 0.01  # share of the error by which an edge that binds is better than all that lies inside


def total_variation(images: Float[Tensor, "n colors height width"]) -> Float[Tensor, " n"]:
    """Compute the mean absolute difference of neighbours, horizontal plus vertical, of each image.

    Args:
        images: Images on the networks' scale. Records with one row have no vertical differences.

    Returns:
        One value >= 0 per image, 0 for a constant one.

    Source:
        Geiping et al. 2020.
    """
    horizontal = images[..., :, 1:] - images[..., :, :-1]
    vertical = images[..., 1:, :] - images[..., :-1, :]
    means = [step.abs().flatten(1).mean(1) for step in (horizontal, vertical) if all(step.shape[1:])]
    return sum(means[1:], means[0])


def jittered(
    start: Float[Tensor, "n colors height width"], attempt: int, generator: torch.Generator
) -> Float[Tensor, "n colors height width"]:
    """Add Gaussian noise to starts, kept inside [-1, 1].

    Args:
        start: First starts.
        attempt: 1 for the first restart. Each next one jumps twice as far.
        generator: Generator of the noise, on the CPU.
    """
    noise = torch.randn(start.shape, generator=generator, dtype=start.dtype).to(start.device)
    return (start + _JITTER * 2 ** (attempt - 1) * noise).clamp(-LARGEST_PIXEL, LARGEST_PIXEL)


def largest_binds(errors: Sequence[float]) -> bool:
    """Return whether the last setting of a grid is best, by more than a hundredth of the error.

    Args:
        errors: Error of each setting in the order of the grid, infinite or NaN where it gave no result. A
            grid of one setting does not bind, as no other was requested.
    """
    inside = [error for error in errors[:-1] if error == error]
    return bool(inside) and errors[-1] < (1 - _MATERIAL) * min(inside)
