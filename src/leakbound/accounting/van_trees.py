"""Van Trees' inequality: the least mean squared error of any reconstruction, over records of a stated prior.

It is a theorem about a prior with a finite Fisher information. Pictures of 256 levels have none, which is why
the entropy bound is 0 for them (:mod:`leakbound.accounting.reconstruction`), and nothing but a prior can fill
that hole: who holds a list of all pictures identifies the right one. The prior here blends public records with
what nobody but the owner knows,

    X = m + √(1 − s) (S − m) + √s Z,   S one of the public records, Z ~ N(0, Σ),

m and Σ their mean and covariance, which are those of X, too. At s = 1 records are Gaussian and the bound is the
error of the best linear estimate, at s = 0 they are the pictures and it is 0. Given S, the Fisher information of
X is (s Σ)⁻¹, so that the bound holds even for attackers who know S.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy import linalg

_CHUNK = 1000  # records compared with all others at once


def van_trees_error(
    variances: Float[np.ndarray, " r"],
    information: Float[np.ndarray, "r r"],
    chosen_by: Float[np.ndarray, "r r"] | None = None,
) -> float:
    """Bound from below the squared error of every estimate of X from an upload Y, tr (J + H⁻¹)⁻¹.

    X has a prior whose Fisher information is at most H⁻¹, as a mixture of normal distributions N(m_i, H) has.
    The density of Y given X is absolutely continuous in X. J is the Fisher information of Y about X, averaged
    over the prior. Of the upload g(X) + N(0, N) it is E G(X)ᵀ N⁻¹ G(X), G the Jacobian of a function g without
    jumps. Of anything computed from X + N(0, N) it is at most N⁻¹. A larger J only lowers the bound. The error
    along some axes alone is bounded by their part of H and J.

    Args:
        variances: Eigenvalues of H, each >= 0, squared units of X.
        information: J along the axes of H, symmetric, positive semi-definite.
        chosen_by: Another estimate of J, from independent draws of X. The bound of an estimate of J is too high
            on average, because it is convex in J. With ``chosen_by`` K it is tr (2 M − M (J + H⁻¹) M) at
            M = (K + H⁻¹)⁻¹, which is not, and is lower unless K = J. It may be negative.

    Returns:
        Squared units of X, summed over the axes, at most the sum of ``variances``.

    Raises:
        ValueError: If a variance is negative or not finite, or an entry of J is not finite.

    Source:
        van Trees 1968, "Detection, Estimation, and Modulation Theory". Gill and Levit 1995, "Applications of the
        van Trees inequality", whose matrix C is free, as M is.

    Example:
        >>> van_trees_error(np.array([4.0]), np.array([[0.25]]))  # a Gaussian behind noise of variance 4
        2.0
    """
    if not (np.isfinite(variances).all() and (variances >= 0).all()):
        raise ValueError("variances: each must be finite and >= 0")
    if not np.isfinite(information).all():
        raise ValueError("information: an entry is not finite; noise of variance 0 shows the record exactly")
    scale = np.sqrt(variances)
    unit = np.eye(len(variances))
    measured = unit + scale[:, None] * information * scale
    chosen = measured if chosen_by is None else unit + scale[:, None] * chosen_by * scale
    inverse = linalg.inv(chosen)
    errors = np.diag(inverse)
    if chosen_by is not None:
        errors = 2.0 * errors - np.einsum("ij,ij->j", inverse, measured @ inverse)
    return float(variances @ errors)


def unknown_share(records: Float[np.ndarray, "n d"]) -> float:
    """Compute s, the share of the variance of a public record that the best multiple of another one leaves.

    So much of it remains unknown to somebody who holds the other public records and knows which is most like it.

    Args:
        records: Public records, at least 2, any units.

    Returns:
        s in [0, 1], 0 if each record is there twice or all are equal.

    Raises:
        ValueError: If there are fewer than 2 records.
    """
    if len(records) < 2:
        raise ValueError(f"{len(records)} public records: give at least 2, to compare one with another")
    centred = records - records.mean(axis=0)
    squares = (centred**2).sum(axis=1)
    units = centred / np.sqrt(np.where(squares > 0, squares, 1.0))[:, None]
    left = 0.0
    for start in range(0, len(units), _CHUNK):
        cosines = units[start : start + _CHUNK] @ units.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = 0.0  # a record is not compared with itself
        best = np.clip((cosines**2).max(axis=1), 0.0, 1.0)
        left += float(squares[start : start + _CHUNK] @ (1.0 - best))
    return left / float(squares.sum()) if squares.any() else 0.0
