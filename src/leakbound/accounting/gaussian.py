"""Information in Gaussian vectors, in nats and float64: capacity, mutual information, conditional covariance.

``eigenvalues`` are those of a signal's covariance, or of a pair of covariances (signal, noise shape). Noise
is given by its variances along the same axes, or by one number for all axes. A signal of variance 0 is never
revealed. Infinite noise reveals nothing. Zero noise reveals a positive signal completely.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

_ROUNDING = 1e-10  # negative eigenvalues and asymmetry below this share of the largest entry are rounding


def log_expm1(x: float | Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Compute ln(eˣ − 1) for x > 0 without overflow, with a relative error of a few units in the last place.

    Raises:
        ValueError: If an x is not above 0.
    """
    values = np.asarray(x, dtype=np.float64)
    if not np.all(values > 0):
        raise ValueError(f"log_expm1 is defined for x > 0, got {x}")
    low = np.log(np.expm1(np.minimum(values, 30.0)))
    return np.where(values <= 30.0, low, values + np.log1p(-np.exp(-np.maximum(values, 30.0))))


def clip_eigenvalues(eigenvalues: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Set negative rounding errors in the eigenvalues of a covariance to 0.

    Raises:
        ValueError: If an eigenvalue is not finite, or negative by more than rounding (1e-10 of the largest).
    """
    values = np.asarray(eigenvalues, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("an eigenvalue is not finite: the covariance holds NaN or infinity")
    if values.size and values.min() < -_ROUNDING * max(values.max(), 0.0):
        raise ValueError(f"eigenvalue {values.min():.6g} is negative: a covariance has eigenvalues >= 0")
    return np.maximum(values, 0.0)


def check_covariance(covariance: Float[np.ndarray, "d d"], name: str = "covariance") -> None:
    """Check that a matrix is finite, and symmetric up to 1e-10 of its largest entry.

    Raises:
        ValueError: If it is not.
    """
    if not np.isfinite(covariance).all():
        raise ValueError(f"{name}: an entry is NaN or infinite")
    scale = float(np.abs(covariance).max(initial=0.0))
    if float(np.abs(covariance - covariance.T).max(initial=0.0)) > _ROUNDING * scale:
        raise ValueError(
            f"{name}: the matrix is not symmetric; pass (C + C.T) / 2 if the difference means nothing"
        )


def check_uses(uses: float) -> None:
    """Check that a number of uses is finite and at least 1.

    Raises:
        ValueError: If it is not.
    """
    if not (math.isfinite(uses) and uses >= 1.0):
        raise ValueError(f"uses = {uses}: the number of independent uses is finite and >= 1")


def _spread(
    eigenvalues: Float[np.ndarray, " d"], noise_variances: float | Float[np.ndarray, " d"]
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
    """Return the positive eigenvalues and the noise variances along their axes."""
    signal = clip_eigenvalues(eigenvalues)
    noise = np.broadcast_to(np.asarray(noise_variances, dtype=np.float64), signal.shape)
    if not np.all(noise >= 0):
        raise ValueError(f"a noise variance is {noise[~(noise >= 0)][0]}: variances are >= 0")
    positive = signal > 0
    return signal[positive], noise[positive]


def gaussian_capacity(
    eigenvalues: Float[np.ndarray, " d"], noise_variances: float | Float[np.ndarray, " d"], uses: float = 1.0
) -> float:
    """Compute the most that k uses with independent noise reveal about one signal, ½ Σ_i ln(1 + k λ_i / σ_i).

    This is an upper bound on the mutual information for every distribution of the signal with these
    eigenvalues. The Gaussian distribution attains it. Independent uses add precisions, hence the k inside the
    logarithm.

    Args:
        eigenvalues: λ, signal variance along each axis, float64, each >= 0.
        noise_variances: σ, noise variance along the same axes, or one number for all. 0 and ∞ are allowed.
        uses: k, number of uses with independent noise, real, >= 1.

    Returns:
        Nats, in [0, ∞].

    Raises:
        ValueError: If a variance is negative or NaN, or ``uses`` < 1.

    Source:
        Tan et al. 2024, Eq. (15), for one use.
    """
    check_uses(uses)
    signal, noise = _spread(eigenvalues, noise_variances)
    if np.any(noise == 0):
        return math.inf
    with np.errstate(over="ignore"):
        ratio = uses * (signal / noise)
    finite = np.isfinite(ratio)
    terms = np.log1p(ratio[finite]).sum()
    # Where the quotient overflows, adding 1 changes nothing, and the logarithms still subtract.
    terms += (math.log(uses) + np.log(signal[~finite]) - np.log(noise[~finite])).sum()
    return 0.5 * float(terms)


def linear_mmse(
    eigenvalues: Float[np.ndarray, " d"], noise_variances: float | Float[np.ndarray, " d"], uses: float = 1.0
) -> float:
    """Compute the squared error of the best linear estimate from k noisy uses, Σ_i λ_i σ_i / (k λ_i + σ_i).

    Arguments and errors are those of :func:`gaussian_capacity`.

    Returns:
        Total over the axes, in squared signal units. A linear estimator reaches it for every distribution of
        the signal. For a Gaussian signal no estimator has a smaller error.
    """
    check_uses(uses)
    signal, noise = _spread(eigenvalues, noise_variances)
    with np.errstate(divide="ignore", over="ignore"):
        return float((signal / (1.0 + uses * (signal / noise))).sum())


def linear_mmse_from_covariances(
    covariance: Float[np.ndarray, "d d"], noise_variances: Float[np.ndarray, " d"], uses: float = 1.0
) -> float:
    """Compute the squared error of the best linear estimate for any axes, tr(Σ − Σ(Σ + N/k)⁻¹Σ).

    Signal and noise need not share their axes.

    Args:
        covariance: Σ of the signal, float64.
        noise_variances: Diagonal of N, each > 0.
        uses: k, number of uses with independent noise, real, >= 1.

    Returns:
        Total over the coordinates, in squared signal units.

    Raises:
        ValueError: If Σ is no covariance, a noise variance is not positive and finite, or ``uses`` < 1.
    """
    from scipy import linalg  # slow import

    check_uses(uses)
    check_covariance(covariance)
    if not np.all((noise_variances > 0) & np.isfinite(noise_variances)):
        raise ValueError("noise_variances: every one must be positive and finite")
    # Σ − Σ(Σ+N)⁻¹Σ = Σ(Σ+N)⁻¹N, which subtracts nothing.
    noise = noise_variances / uses
    inverse = linalg.cho_solve(linalg.cho_factor(covariance + np.diag(noise)), np.diag(noise))
    return float(np.einsum("ij,ji->", covariance, inverse))


def log_determinant(covariance: Float[np.ndarray, "d d"]) -> float:
    """Compute the logarithm of the determinant of a positive definite matrix.

    Raises:
        ValueError: If the matrix is not symmetric or not positive definite.
    """
    check_covariance(covariance)
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "the covariance is not positive definite; add noise or drop constant coordinates"
        ) from error
    return 2.0 * float(np.log(np.diag(factor)).sum())


def mutual_information(covariance: Float[np.ndarray, "d d"], first: Sequence[int]) -> float:
    """Compute the mutual information between some coordinates of a Gaussian vector and the others, in nats.

    ½ [ln det Σ_aa + ln det Σ_bb − ln det Σ].

    Args:
        covariance: Σ of the whole vector, positive definite, float64.
        first: Indices a of some coordinates. b are all others.

    Raises:
        ValueError: If Σ is not positive definite, or the indices are none, all, out of range, or repeated.
    """
    rest = _complement(len(covariance), first)
    blocks = (covariance[np.ix_(block, block)] for block in (list(first), rest))
    return 0.5 * (sum(map(log_determinant, blocks)) - log_determinant(covariance))


def _complement(dimension: int, indices: Sequence[int]) -> list[int]:
    """Return the other indices for some, not all, distinct coordinates."""
    chosen = set(indices)
    if len(chosen) != len(indices) or not chosen or not chosen < set(range(dimension)):
        raise ValueError(f"indices {list(indices)}: some, not all, of 0..{dimension - 1}, each once")
    return [index for index in range(dimension) if index not in chosen]
