"""An attacker's knowledge of any image: its pixels have a range, and neighbouring ones are alike."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

LARGEST_PIXEL = 1.0
"""Largest absolute value of a pixel on the networks' scale."""


def total_variation(images: Float[Tensor, "n colors height width"]) -> Float[Tensor, " n"]:
    """Anisotropic total variation of each image: mean |horizontal difference| + mean |vertical difference|.

    Args:
        images: On the networks' scale.

    Returns:
        One value >= 0 per image, 0 for a constant one.

    Source:
        Geiping et al. 2020.
    """
    horizontal = images[..., :, 1:] - images[..., :, :-1]
    vertical = images[..., 1:, :] - images[..., :-1, :]
    return horizontal.abs().flatten(1).mean(1) + vertical.abs().flatten(1).mean(1)
