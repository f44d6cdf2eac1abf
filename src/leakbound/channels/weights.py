"""Weights of the personalized shape: more noise inside a rectangle."""

import math

import numpy as np
from jaxtyping import Float


def box_weights(
    colors: int, height: int, width: int, weight: float, rows: tuple[int, int], columns: tuple[int, int]
) -> Float[np.ndarray, " d"]:
    """Compute weights that are ``weight`` inside a rectangle and 1 elsewhere, equal for every color.

    Args:
        colors: Planes of an image, 1 or 3.
        height: Rows of pixels.
        width: Columns of pixels.
        weight: Relative noise variance inside the rectangle, > 0. A weight of 2 doubles the variance.
        rows: First row and the row after the last one, counted from 0.
        columns: First column and the column after the last one, counted from 0.

    Returns:
        (colors·height·width,) weights β in the order (color, row, column) of a flattened image.

    Raises:
        ValueError: If the rectangle is empty or exceeds the image, or ``weight`` is not positive and finite.
    """
    for name, (start, stop), size in (("rows", rows, height), ("columns", columns, width)):
        if not 0 <= start < stop <= size:
            raise ValueError(f"{name} = ({start}, {stop}): 0 <= start < stop <= {size} is required")
    if not 0 < weight < math.inf:
        raise ValueError(f"weight = {weight}: it must be positive and finite")
    weights = np.ones((colors, height, width))
    weights[:, slice(*rows), slice(*columns)] = weight
    return weights.reshape(-1)
