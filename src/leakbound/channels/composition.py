"""Information that uses of several channels reveal together about one record, in nats and float64."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from leakbound.accounting.gaussian import clip_eigenvalues, log_determinant
from leakbound.accounting.leakage import Mechanism, Schedule, composed_nats
from leakbound.channels.channel import GaussianChannel
from leakbound.channels.covariance import Moments


def schedule_nats(
    channels: Sequence[GaussianChannel],
    mechanisms: Sequence[Mechanism],
    counts: Sequence[int],
    moments: Moments,
) -> float:
    """Bound the nats of uses of several channels by their axes, or by common ones where no covariance is formed.

    Args:
        channels: Channels, each once.
        mechanisms: Each of them as a mechanism.
        counts: Uses of each with independent noise.
        moments: As in :func:`composed_capacity`.
    """
    places = {id(mechanism): place for place, mechanism in enumerate(mechanisms)}

    def determinant(seen: Schedule) -> float:
        """Compute the determinant of the precisions of all channels that were used."""
        used = [(channels[places[id(mechanism)]], int(count)) for mechanism, count in seen]
        return composed_capacity(used, moments)

    rule = determinant if moments.formed else None
    return composed_nats([*zip(mechanisms, counts, strict=True)], rule)


def determinant_nats(uses: Schedule, moments: Moments) -> float:
    """Compute ½ ln det(I + Σ_i k_i Σ^½ P_i Σ^½) of mechanisms whose axes are known, without their channels.

    P_i has the precisions of mechanism i along the values, where it names some. Else Σ^½ P_i Σ^½ has its variance
    ratios along the principal directions of Σ.

    Args:
        uses: Mechanisms with k_i, the number of uses of each with independent noise, > 0.
        moments: Mean and covariance Σ, whose name all mechanisms have as that of their axes.
    """
    along = np.zeros(moments.dimension)
    ratios = np.zeros(moments.dimension)
    for mechanism, count in uses:
        if mechanism.precisions is None:
            ratios += count * mechanism.ratios
        else:
            along += count * mechanism.precisions
    if not (np.isfinite(ratios).all() and np.isfinite(along).all()):
        return math.inf
    if not ratios.any():
        root = np.sqrt(along)
        return _half_log_determinant(root[:, None] * moments.covariance * root)
    variances, basis = moments.principal()
    turned = basis * np.sqrt(variances)
    return _half_log_determinant(turned.T @ (along[:, None] * turned) + np.diag(ratios))


def composed_capacity(uses: Sequence[tuple[GaussianChannel, int]], moments: Moments) -> float:
    """Compute the leakage of independent uses of channels of any shapes, ½ ln det(I + Σ_i k_i Σ^½ P_i Σ^½).

    P_i = A_i N_i⁻¹ A_i is the precision of one use of channel i. Precisions of independent uses add, whatever
    their axes, so the leakage is never above the sum of the capacities. For one channel it is ½ Σ ln(1 + k
    μ/σ).

    Args:
        uses: Channels with k_i, the number of uses of each with independent noise, >= 0.
        moments: Mean and covariance Σ of the records that the channels were calibrated to.

    Returns:
        Nats about one record. It is ∞ if a use has no noise in a direction in which records vary.

    Raises:
        ValueError: If a number of uses is negative, or a channel has another dimension than the moments.
    """
    # Precisions along each set of axes, by its identity; the pixels are those without a basis.
    seen: dict[int, Any] = {id(None): (None, np.zeros(moments.dimension))}
    for channel, count in uses:
        if count < 0 or channel.dimension != moments.dimension:
            raise ValueError(
                f"{count} uses of a channel of {channel.dimension} axes for records of {moments.dimension} values: the "
                "number must be >= 0, and the dimensions must agree"
            )
        if not count:
            continue
        precision = _precision(channel, moments.covariance, count)
        if precision is None:
            return math.inf
        total = seen.get(id(channel.basis), (channel.basis, 0.0))[1]
        seen[id(channel.basis)] = (channel.basis, total + precision)
    basis = next((axes for axes, _ in seen.values() if axes is not None), None)
    if basis is None:
        root = np.sqrt(seen[id(None)][1])
        return _half_log_determinant(root[:, None] * moments.covariance * root)
    root = np.sqrt(_variances(moments.covariance, basis))
    total = sum(_seen_along(basis, precision, axes) for axes, precision in seen.values())
    return _half_log_determinant(root[:, None] * total * root)


def _seen_along(
    basis: Float[np.ndarray, "d d"], precision: Float[np.ndarray, " d"], axes: Float[np.ndarray, "d d"] | None
) -> Float[np.ndarray, "d d"]:
    """Express a precision matrix along other axes than its own. By default its own axes are the pixels."""
    if axes is basis or (axes is None and np.all(precision == precision[0])):
        return np.diag(precision)
    turn = basis if axes is None else axes.T @ basis
    return turn.T @ (precision[:, None] * turn)


def _variances(
    covariance: Float[np.ndarray, "d d"], basis: Float[np.ndarray, "d d"]
) -> Float[np.ndarray, " d"]:
    """Return variances along principal axes, without negative rounding errors."""
    return clip_eigenvalues(np.einsum("ij,ij->j", basis, covariance @ basis))


def _precision(
    channel: GaussianChannel, covariance: Float[np.ndarray, "d d"], uses: int
) -> Float[np.ndarray, " d"] | None:
    """Compute the precision of all uses along the axes, or None if the data vary where there is no noise."""
    gain = np.ones(channel.dimension) if channel.gain is None else channel.gain
    bare = (channel.variances == 0) & (gain > 0)
    if bare.any():
        signal = np.diag(covariance) if channel.basis is None else _variances(covariance, channel.basis)
        if np.any(signal[bare] > 0):
            return None
    return np.divide(uses * gain**2, channel.variances, out=np.zeros_like(gain), where=channel.variances > 0)


def _half_log_determinant(ratios: Float[np.ndarray, "d d"]) -> float:
    """Compute ½ ln det(I + R) of a positive semidefinite matrix R."""
    return 0.5 * log_determinant(np.eye(len(ratios)) + 0.5 * (ratios + ratios.T))
