"""Whitened inner products of records' gradients with a sum of gradients, of which no gradient is formed.

A record with slope δ and input f of a layer has the gradient δ fᵀ. With second moments B of slopes and A of inputs of
other records, those of their gradients are about B ⊗ A. So δᵀ B⁻¹ G A⁻¹ f compares the sum G with a record as a
whitened filter does. Noise of variance σ² on the sum of n gradients is added to n B ⊗ A, whose axes stay.

Source:
    Martens and Grosse 2015, 'Optimizing neural networks with Kronecker-factored approximate curvature' (B ⊗ A).
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakbound_lab.training.layer_factors import Outer

Units = tuple[Float[Tensor, " outputs"], Float[Tensor, " values"]]
"""Units of slopes and of inputs of a layer."""
WhitenedInputs = tuple[Float[Tensor, "n values"], Float[Tensor, "n axes"], Float[Tensor, " n"]]
"""Inputs f of a layer, A⁻¹ f and fᵀ A⁻¹ f, or coordinates of f along the axes of A and fᵀ f."""
Side = tuple[Tensor, Tensor]
"""Inverse of A or B and nothing, or its largest axes as columns and the moments along them."""
_WEIGHTS = (4.0, 100.0)  # of the variance of others, in scores of single steps and of all steps
_AXES = 512  # axes of inputs along which others are more than noise on gradients
_LEAST = 1e-12  # of the largest moment, for an axis of a Gram matrix that is more than rounding
_RIDGE = 0.01  # of the mean moment, for directions that too few public records span


class Whitening(NamedTuple):
    """Whitening of gradients δ fᵀ of one layer.

    Attributes:
        slopes: B⁻¹, or the axes of B as columns.
        inputs: A⁻¹, or the axes of A as columns.
        others: (scores, outputs, axes), the part of the variance along each pair of axes that is not noise on
            gradients, for each of some scores. None without such noise, where inverses whiten.
    """

    slopes: Tensor
    inputs: Tensor
    others: Tensor | None


class Whitener:
    """Estimates from public records what whitens gradients.

    Args:
        noise: Variance of the noise on a sum of gradients, for each record in it. 0 without noise on gradients.
    """

    def __init__(self, noise: float) -> None:
        self._noise = noise

    def of_layer(self, slopes: Tensor, inputs: Tensor, of_inputs: Side | None) -> Whitening:
        """Estimate the whitening of a layer.

        Args:
            slopes: Slopes of public records (n, outputs).
            inputs: Inputs of public records (n, values).
            of_inputs: Side of the inputs, if it is known.
        """
        of_slopes, outputs = self._side_of(slopes)
        axes, values = self._side_of(inputs) if of_inputs is None else of_inputs
        others = None
        if self._noise:
            variances = slopes.new_tensor(_WEIGHTS)[:, None, None] * outputs[:, None] * values
            others = variances / (variances + self._noise)
        return Whitening(of_slopes, axes, others)

    def _side_of(self, rows: Float[Tensor, "n values"]) -> Side:
        """Return the inverse of the second moments of rows, or their largest axes if gradients are noisy."""
        if self._noise and len(rows) < rows.shape[1] and rows.isfinite().all():
            return axes_of_few(rows)
        return self.side(second_moments(rows))

    def side(self, moments: Float[Tensor, "values values"]) -> Side:
        """Return the inverse of A or B, or its largest axes with their moments if gradients are noisy."""
        if not self._noise:
            return _inverse(moments), moments[:0, 0]
        finite = moments if moments.isfinite().all() else torch.zeros_like(moments)  # of a diverged network
        squares, axes = torch.linalg.eigh(finite)
        return axes[:, -_AXES:], squares[-_AXES:].clamp(min=0)

    def whitened(self, inputs: Tensor, of_inputs: Tensor) -> WhitenedInputs:
        """Whiten inputs of a layer, or express them along axes."""
        whitened = inputs @ of_inputs
        return inputs, whitened, ((inputs if self._noise else whitened) * inputs).sum(1)


def inner_products(
    total: Float[Tensor, "outputs values"],
    slopes: Float[Tensor, "n outputs"],
    inputs: WhitenedInputs,
    whitening: Whitening,
) -> tuple[Float[Tensor, " n"], Float[Tensor, "scores 2 n"]]:
    """Compute inner products of records' gradients δ fᵀ with a sum G, plain and whitened.

    Args:
        total: G, the sum of the gradients of some records.
        slopes: δ.
        inputs: f, in what form the whitening takes it.
        whitening: B⁻¹ and A⁻¹, or axes with noise on gradients.

    Returns:
        δᵀ G f, and for each score the whitened inner product and the whitened squared norm of the gradient:
        δᵀ B⁻¹ G A⁻¹ f and δᵀ B⁻¹ δ · fᵀ A⁻¹ f. With noise of variance σ² on the sum, both are those of the
        inverse of n B ⊗ A + σ², times σ².
    """
    values, whitened, lengths = inputs
    whitened_slopes = slopes @ whitening.slopes
    plain = ((values @ total.T) * slopes).sum(1)
    if whitening.others is None:
        sums = torch.stack(
            [((whitened @ total.T) * whitened_slopes).sum(1), (whitened_slopes * slopes).sum(1) * lengths]
        )
        return plain, sums[None]
    rotated = whitening.slopes.T @ total @ whitening.inputs
    whole = torch.stack([plain, slopes.square().sum(1) * lengths])
    removed = [
        torch.stack(
            [
                ((whitened_slopes @ (rotated * part)) * whitened).sum(1),
                ((whitened_slopes.square() @ part) * whitened.square()).sum(1),
            ]
        )
        for part in whitening.others
    ]
    return plain, whole - torch.stack(removed)


def in_units(factors: Mapping[str, Outer], units: Mapping[str, Units]) -> dict[str, Outer]:
    """Express slopes and inputs of layers in units of the noise, if there are any."""
    return {
        name: (slopes / units[name][0], inputs / units[name][1]) if name in units else (slopes, inputs)
        for name, (slopes, inputs) in factors.items()
    }


def second_moments(rows: Float[Tensor, "n values"]) -> Float[Tensor, "values values"]:
    """Compute the second moments of some rows."""
    return rows.T @ rows / len(rows)


def axes_of_few(
    rows: Float[Tensor, "n values"],
) -> tuple[Float[Tensor, "values axes"], Float[Tensor, " axes"]]:
    """Compute the largest axes of the second moments of fewer rows than values, and these, by the rows' Gram matrix.

    Axes along which the rows do not differ from 0 are 0, as are their moments.
    """
    exact = rows.double()
    squares, vectors = torch.linalg.eigh(exact @ exact.T / len(rows))
    squares = squares[-_AXES:]
    vectors = vectors[:, -_AXES:]
    spanned = squares > _LEAST * squares[-1]
    lengths = (len(rows) * squares).where(spanned, math.inf).sqrt()
    return ((exact.T @ vectors) / lengths).to(rows), squares.where(spanned, 0.0).to(rows)


def _inverse(moments: Float[Tensor, "values values"]) -> Float[Tensor, "values values"]:
    """Invert second moments with a ridge, NaN where they are NaN."""
    diagonal = moments.diagonal()
    diagonal += _RIDGE * diagonal.mean() + torch.finfo(moments.dtype).tiny
    return torch.cholesky_inverse(torch.linalg.cholesky_ex(moments).L)
