"""A face that may be published, for figures about datasets of faces that may not."""

import numpy as np
from jaxtyping import Float

PORTRAIT = "portrait"
"""Value of the column ``dataset`` in rows of this picture."""

_FACE = (slice(20, 180), slice(145, 305))
"""Rows and columns of the face, cut as the faces of CelebA are: hair and chin inside, little else."""


def portrait(colors: int, side: int) -> Float[np.ndarray, "1 {colors} {side} {side}"]:
    """Read the portrait of the astronaut Eileen Collins, on the scale [-1, 1], as images of a dataset.

    A photograph of NASA in the public domain, which scikit-image brings along. Resized as images of datasets are.

    Args:
        colors: 3, or 1 for grey by its luminance (ITU-R 601, as images of datasets).
        side: Pixels of a side.

    Raises:
        ValueError: For another number of colors.
    """
    from PIL import Image
    from skimage.data import astronaut

    from leakbound_lab.datasets.pixels import resize

    if colors not in (1, 3):
        raise ValueError(
            f"illustrations.noisy_images.pictures = {PORTRAIT!r}: for images of 1 or 3 colors, not {colors}"
        )
    face = Image.fromarray(astronaut()[_FACE])
    pixels = np.asarray(face if colors == 3 else face.convert("L"))
    return resize(pixels.reshape(1, *face.size[::-1], colors), side)
