"""Searches for images: range of pixels, total variation, restarts of stuck searches, and grids that bind."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from leakbound_lab.models.layers import ImageTensor
from leakbound_lab.training.eager_optimizers import Adam
from leakbound_lab.training.stack import Replayed, TensorStep, cuda_graph

LARGEST_PIXEL = 1.0
"""Largest absolute value of a pixel on the networks' scale."""
RESTARTS = 3
"""Jittered starts after the first one."""
EXTENSIONS = 3
"""Factors of 10 by which a grid that binds is extended at one end."""

_JITTER = 0.1  # standard deviation of the first jitter on the networks' scale, which doubles at each next one
_MATERIAL = 0.01  # share of the error by which an edge that binds is better than all that lies inside


def total_variation(images: ImageTensor) -> Float[Tensor, " n"]:
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


def jittered(start: ImageTensor, attempt: int, generator: torch.Generator) -> ImageTensor:
    """Add Gaussian noise to starts, kept inside [-1, 1].

    Args:
        start: First starts.
        attempt: 1 for the first restart. Each next one jumps twice as far.
        generator: Generator of the noise, on the CPU.
    """
    noise = torch.randn(start.shape, generator=generator, dtype=start.dtype).to(start.device)
    return (start + _JITTER * 2 ** (attempt - 1) * noise).clamp(-LARGEST_PIXEL, LARGEST_PIXEL)


def descent(
    images: ImageTensor, learning_rate: float, limits: Any, gradient: Callable[[], Tensor]
) -> tuple[torch.optim.Adam, Replayed]:
    """Make Adam on images, and its step, which a GPU replays as a CUDA graph: all kernels start at once.

    Args:
        images: First iterates, which each step changes.
        learning_rate: Adam's. A GPU reads it from its memory, so that it may fall.
        limits: Largest absolute pixel value, a number or a tensor that is broadcast.
        gradient: Computes the direction that Adam descends against. It waits for no value of the GPU.
    """
    rate = torch.tensor(learning_rate, device=images.device) if images.is_cuda else learning_rate
    optimizer = Adam([images], lr=rate, fused=images.is_cuda)

    def step() -> None:
        """Take a step, and project the images to the range of their pixels."""
        images.grad = gradient()
        optimizer.step()
        with torch.no_grad():
            images.clamp_(-limits, limits)

    def capture(step: TensorStep, tensors: Sequence[Tensor]) -> TensorStep:
        """Capture the step with Adam marked as capturable, which it warns of in any other step."""
        optimizer.param_groups[0]["capturable"] = True
        try:
            return cuda_graph(step, tensors)
        finally:
            optimizer.param_groups[0]["capturable"] = False

    return optimizer, Replayed(step, capture if images.is_cuda else None)


def largest_binds(errors: Sequence[float]) -> bool:
    """Return whether the last setting of a grid is best, by more than a hundredth of the error.

    Args:
        errors: Error of each setting in the order of the grid, infinite or NaN where it gave no result. A
            grid of one setting does not bind, as no other was requested.
    """
    inside = [error for error in errors[:-1] if error == error]
    return bool(inside) and errors[-1] < (1 - _MATERIAL) * min(inside)
