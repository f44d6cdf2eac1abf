"""Pixels of the size and range that networks, covariance and noise work on."""

import numpy as np
from jaxtyping import Float, Shaped
from PIL import Image

from leakbound_lab.config.data import IMAGE_SIDE


def resize(
    pixels: Shaped[np.ndarray, "n height width colors"], side: int = IMAGE_SIDE
) -> Float[np.ndarray, "n colors {side} {side}"]:
    """Resize pixels 0 to 255 to a square by antialiased bilinear interpolation and scale them to [-1, 1].

    The eigenvalues that Tan et al. (2024) print come from images that were treated like this. Interpolation
    works on floats, so nothing is rounded. Images of this size keep their exact values. The aspect ratio is
    not kept.
    """
    planes = np.moveaxis(pixels, -1, 1).astype(np.float32)
    if planes.shape[2:] != (side, side):
        flat = (Image.fromarray(plane) for plane in planes.reshape(-1, *planes.shape[2:]))
        small = [np.asarray(image.resize((side, side), Image.Resampling.BILINEAR)) for image in flat]
        planes = np.stack(small).reshape(*planes.shape[:2], side, side)
    return np.ascontiguousarray(np.clip(planes / np.float32(127.5) - np.float32(1), -1, 1))
