"""Searches for images: range of pixels, total variation, restarts where a search is stuck, and grids that bind."""

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

_JITTER = (
    0.1  # standard deviation of the first jitter on the networks' scale; each next one has twice as much
)
_MATERIAL = (
    0.01  # share of the error by which an edge is better than all that lies inside, else it does not bind
)


def total_variation(images: Float[Tensor, "n colors height width"]) -> Float[Tensor, " n"]:
    """Anisotropic total variation of each image: mean |horizontal difference| + mean |vertical difference|.

    Args:
        images: On the networks' scale. Records with one row have no vertical differences.

    Returns:
        One value >= 0 per image, 0 for a constant one.

    Source:
        Geiping et al. 2020.
    """
    horizontal = images[..., :, 1:] - images[..., :, :-1]
    vertical = images[..., 1:, :] - images[..., :-1, :]
    steps = (horizontal, vertical)
    means = [step.abs().flatten(1).mean(1) for step in steps if all(step.shape[1:])]
    return sum(means[1:], means[0])


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
        errors: Error of each setting in the order of the grid, infinite or NaN where it gave no result. A
            grid of one setting does not bind: nothing else was asked for.
    """
    inside = [error for error in errors[:-1] if error == error]
    return bool(inside) and errors[-1] < (1 - _MATERIAL) * min(inside)
