"""Pixels: decode image files, resize them, bring to the scale on which networks, covariance and noise work."""

import io

import numpy as np
from jaxtyping import Float, Shaped
from PIL import Image

from leakbound.config.data import IMAGE_SIDE
from leakbound.datasets.records import DatasetError
from leakbound.storage import limits

_FORMATS = ("PNG", "WEBP", "JPEG")  # no others: Pillow hands some, such as EPS, to another program


def decode(encoded: bytes | None, place: str) -> Shaped[np.ndarray, "height width colors"]:
    """Decode one PNG, WebP or JPEG file to uint8 pixels.

    Args:
        encoded: Bytes of the file.
        place: File, or file and row, for messages.

    Raises:
        DatasetError: If the bytes are missing or no image, or the image is too large or neither grey nor RGB.
    """
    if not encoded:
        raise DatasetError(f"{place}: there is no image. Replace it or leave it out.")
    largest = limits.PIXELS * limits.factor()
    try:
        with Image.open(io.BytesIO(encoded), formats=_FORMATS) as image:
            mode, size = image.mode, image.size
            pixels = None
            if size[0] * size[1] <= largest:  # known before anything is decoded
                image.load()
                pixels = np.asarray(image)
    except Exception as error:  # decoders of damaged images raise anything
        raise DatasetError(
            f"{place}: the image cannot be decoded ({error}). Replace it or leave it out."
        ) from error
    if pixels is None:
        raise DatasetError(
            f"{place}: the image has {size[0]}×{size[1]} pixels, allowed are {largest} in all. Make it smaller, leave "
            f"it out, or set {limits.VARIABLE}."
        )
    if mode not in ("L", "RGB"):
        raise DatasetError(
            f"{place}: the image has mode {mode!r}, allowed are 8-bit grey ('L') and 'RGB'. Convert it."
        )
    return pixels.reshape(*pixels.shape[:2], -1)


def resized(
    pixels: Shaped[np.ndarray, "n height width colors"], side: int = IMAGE_SIDE
) -> Float[np.ndarray, "n colors {side} {side}"]:
    """Resize pixels 0 to 255 to a square by antialiased bilinear interpolation and scale them to [-1, 1].

    The eigenvalues that Tan et al. (2024) print come from images treated so. Interpolation works on floats,
    so nothing is rounded; images of that size keep their exact values. The aspect ratio is not kept.
    """
    planes = np.moveaxis(pixels, -1, 1).astype(np.float32)
    if planes.shape[2:] != (side, side):
        flat = (Image.fromarray(plane) for plane in planes.reshape(-1, *planes.shape[2:]))
        small = [np.asarray(one.resize((side, side), Image.Resampling.BILINEAR)) for one in flat]
        planes = np.stack(small).reshape(*planes.shape[:2], side, side)
    return np.ascontiguousarray(np.clip(planes / np.float32(127.5) - np.float32(1), -1, 1))
