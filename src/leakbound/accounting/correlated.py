"""Correlated noise on sums of clipped gradients: its factors, and what one record changes in all of them.

Step t adds row t of C⁻¹Z to its sum, with Z of independent Gaussian rows and C lower triangular, Toeplitz and
banded. C times all uploads is C times all sums with white noise Z, and follows from them, so that all uploads
together are one Gaussian mechanism. A record takes part in one step of each epoch, always the same one.
Where it does so at steps farther apart than C has bands, the columns of C for these steps are orthogonal, and the
squares of their norms add up. That holds for sums that follow from earlier uploads, too.

Source:
    Denisov, McMahan, Rush, Smith and Thakurta 2022, "Improved differential privacy for SGD via optimal private
    linear operators on adaptive streams" (one mechanism, adaptive sums). Choquette-Choo et al. 2023, "(Amplified)
    banded matrix factorization", Theorem 2 (bands and separation).
"""

import math

import numpy as np
from jaxtyping import Float


def square_root_bands(bands: int) -> Float[np.ndarray, " bands"]:
    """Compute the first coefficients of (1 − x)^(−½), the first column of the banded square root.

    Without bands, C = A^½ is the square root of the matrix A of ones that adds up all uploads so far, which is what
    weights are made of.

    Args:
        bands: Number of diagonals, >= 1. One is the identity: independent noise.

    Returns:
        Positive, descending numbers from 1 on.

    Raises:
        ValueError: If there is no band.

    Source:
        Kalinin and Lampert 2024, "Banded square root matrix factorization for differentially private model
        training", without momentum and weight decay.

    Example:
        >>> square_root_bands(4).tolist()
        [1.0, 0.5, 0.375, 0.3125]
    """
    if bands < 1:
        raise ValueError(f"bands = {bands}: at least the diagonal, 1")
    powers = np.arange(1, bands)
    return np.cumprod(np.concatenate([[1.0], (2.0 * powers - 1.0) / (2.0 * powers)]))


def inverse_coefficients(
    coefficients: Float[np.ndarray, " bands"], steps: int
) -> Float[np.ndarray, " steps"]:
    """Compute the first column of C⁻¹, by which white noise is added up.

    Args:
        coefficients: First column of C, its diagonal first.
        steps: Number of rows, >= 1.
    """
    inverse = np.zeros(steps)
    for row in range(steps):
        before = inverse[max(0, row - len(coefficients) + 1) : row][::-1]
        inverse[row] = float(row == 0) - coefficients[1 : len(before) + 1] @ before
    return inverse / coefficients[0]


def participations(steps: int, separation: int) -> int:
    """Compute the most steps that a record takes part in, if they are at least ``separation`` apart."""
    return -(-steps // separation)


def sensitivity(coefficients: Float[np.ndarray, " bands"], separation: int, steps: int) -> float:
    """Compute the norm of what one record changes in C times all sums, in clipping bounds.

    It holds for leaving out a record's gradients, wherever they point, and for all participations that are at least
    ``separation`` steps apart. The most comes from the first step on, as later columns are cut off by the end.

    Args:
        coefficients: First column of C.
        separation: Least number of steps from one participation to the next, >= the number of coefficients.
        steps: Number of steps, >= 0.

    Returns:
        √(Σ squared norms of the columns 0, separation, 2 separation, …).

    Raises:
        ValueError: If there are more coefficients than steps between two participations.

    Source:
        Choquette-Choo et al. 2023, Theorem 2.
    """
    if len(coefficients) > separation:
        raise ValueError(
            f"bands = {len(coefficients)}: a record takes part again after {separation} steps; at most as many bands"
        )
    columns = np.cumsum(np.square(coefficients))  # squared norm of a column that has so many entries left
    left = steps - separation * np.arange(participations(steps, separation))
    return math.sqrt(float(columns[np.minimum(left, len(columns)) - 1].sum()))
