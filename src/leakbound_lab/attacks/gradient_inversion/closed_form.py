"""Closed-form recovery of a single record from its gradient, layer by layer from the logits down.

The gradient of the logits is that of the last bias. A layer's input follows from the gradient of its weights,
which is linear in it, and from its output, which the layer above gave. So where activations can be inverted,
the record that a gradient was computed on is found exactly, noise included, without a prior, a search or a
pixel range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

from leakbound_lab.attacks.gradient_inversion.layer_chain import INSIDE, Link, chain_of
from leakbound_lab.models import memory
from leakbound_lab.models.gradients import Gradients
from leakbound_lab.models.layers import ImageTensor, windows

_ITERATIONS = 2000  # conjugate-gradient steps for a convolution, of which most need a few hundred
_TOLERANCE = 1e-9  # of the normal equations' residual, below what float32 gradients hold
_LEAST = 1e-300  # in place of a denominator of 0


@dataclass(frozen=True)
class Solution:
    """Inputs of the lowest layer that the equations reach, for some records.

    Attributes:
        layer: Name of the lowest layer whose input is known.
        inputs: That input, float64, (n, ...): the images, if ``complete``.
        slopes: Slopes of the loss by that layer's outputs, float64, (n, ...).
        complete: Whether the equations led to the images.
    """

    layer: str
    inputs: Tensor
    slopes: Tensor
    complete: bool


def descend(model: nn.Module, gradients: Gradients, image_shape: tuple[int, int, int]) -> Solution | None:
    """Find the inputs of a network's layers from gradients of single records, as far down as equations lead.

    Linear layers and convolutions are passed where their input is an invertible activation of the layer
    below. A ReLU is passed above a linear layer, whose gradient alone gives its input. Pooling, normalisation
    and branches end the descent. Convolutions are solved by least squares over both kinds of equations, with
    outputs weighted by how well float32 holds them, as the output of a saturated activation says little.

    Args:
        model: Network that the gradients come from, its last layer linear with a bias.
        gradients: Parameter name to gradients of the cross-entropy (n, ...), of one record each.
        image_shape: (colors, height, width).

    Returns:
        The lowest inputs that were reached, or None where the network has no such last layer.

    Source:
        Zhu and Blaschko 2021, "R-GAP: Recursive gradient attack on privacy", with weighted least squares.
    """
    chain, complete = chain_of(model, image_shape)
    if not chain:
        return None
    gradients = {name: tensor.double() for name, tensor in gradients.items()}
    weights = {name: value.detach().double() for name, value in model.named_parameters()}
    # The slope of the loss by the logits is the gradient of the last bias.
    slopes = gradients[f"{chain[0].name}.bias"]
    outputs = slopes  # those of the last layer, which is linear, are not used
    for position, link in enumerate(chain):
        gradient = gradients[f"{link.name}.weight"]
        weight = weights[f"{link.name}.weight"]
        layer: Any = link.layer
        # The input: a linear layer's gradient alone gives it, a convolution's together with its output.
        if isinstance(layer, nn.Linear):
            squares = slopes.square().sum(1, keepdim=True)
            squares = squares.clamp(min=torch.finfo(squares.dtype).tiny)
            inputs = torch.einsum("no,noi->ni", slopes, gradient) / squares
            pulled = slopes @ weight
        else:
            above: Any = chain[position - 1].activation  # invertible, else the chain had ended
            before = above.inverse(outputs)
            if layer.bias is not None:
                before = before - weights[f"{link.name}.bias"][..., None, None]
            inputs = _deconvolved(link, weight, gradient, slopes, before, above.slope(outputs))
            shape = (len(slopes), *link.input_shape)
            pulled = conv2d_input(shape, weight, slopes, layer.stride, layer.padding, layer.dilation)
        # Output and slope of the layer below, through the activation between the two.
        if link.activation is not None:
            outputs = inputs.reshape(-1, *chain[position + 1].output_shape)
            slopes = pulled.reshape(outputs.shape) * link.activation.slope(outputs)
    return Solution(chain[-1].name, inputs, slopes, complete)


def solvable(model: nn.Module, image_shape: tuple[int, int, int]) -> bool:
    """Return whether equations lead from the gradient of a single record to the image."""
    return chain_of(model, image_shape)[1]


def solved_images(model: nn.Module, gradients: Gradients, image_shape: tuple[int, int, int]) -> ImageTensor:
    """Solve for the images that gradients of single records were computed on, float32.

    Arguments are those of :func:`descend`.

    Raises:
        ValueError: If no equations lead to the images.
    """
    layers = descend(model, gradients, image_shape)
    if layers is None or not layers.complete:
        raise ValueError(f"no equations lead from the gradients of {type(model).__name__} to the images")
    return layers.inputs.view(-1, *image_shape).float()


def _deconvolved(
    link: Link, weight: Tensor, gradient: Tensor, slopes: Tensor, before: Tensor, sensitivity: Tensor
) -> Tensor:
    """Solve for the input of a convolution by least squares, with conjugate gradients on all records at once.

    The equations are weight · (W ∗ a) = weight · (output − bias), and Σ over positions of slope ⊗ patch(a) =
    gradient. Both are scaled to like size, and the unknowns so that each column of the system has norm 1.

    Args:
        link: The convolution.
        weight: Its weight.
        gradient: Gradients of its weight (n, ...).
        slopes: Slopes of the loss by its outputs.
        before: Its outputs less its bias.
        sensitivity: Slopes of the activation of its outputs.
    """
    layer: Any = link.layer
    geometry = (link.input_shape[1:], layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    # Both kinds of equations on a like scale: outputs by the activation's slopes at them, gradients by their length.
    sensitivity = (
        sensitivity / _norms(sensitivity).clamp(min=INSIDE) * sensitivity[0].numel() ** 0.5
    ).flatten(2)
    factor = slopes.shape[1] ** 0.5 / _norms(slopes).clamp(min=_LEAST)
    flat = (factor * slopes).flatten(2)
    taps = weight.flatten(1)

    def forward(a: Tensor) -> tuple[Tensor, Tensor]:
        """Compute both sides of the system for inputs, from one set of patches."""
        patches = windows(a, layer)
        return sensitivity * (taps @ patches), flat @ patches.transpose(1, 2)

    def backward(first: Tensor, second: Tensor) -> Tensor:
        """Apply the transpose of ``forward``."""
        return F.fold(taps.mT @ (sensitivity * first) + second.transpose(1, 2) @ flat, *geometry)

    # Unknowns are scaled so that each column of the system has norm 1 (Jacobi preconditioning).
    squares = taps.mT.square() @ sensitivity.square() + flat.square().sum(1, keepdim=True)
    columns = F.fold(squares, *geometry).clamp(min=INSIDE).rsqrt()
    first = sensitivity * before.flatten(2)
    second = factor[:, 0] * gradient.flatten(2)
    # Conjugate gradients on the normal equations, all records at once.
    solution = torch.zeros_like(columns)
    residual = columns * backward(first, second)
    direction = residual
    energy = _norms(residual).square()
    enough = _TOLERANCE**2 * energy
    check_every = memory.CHECK_EVERY.on(slopes.device)
    for iteration in range(1, _ITERATIONS + 1):
        moved = forward(columns * direction)
        step = energy / (_norms(moved[0]).square() + _norms(moved[1]).square()).clamp(min=_LEAST)
        solution = solution + step * direction
        first = first - step[:, 0] * moved[0]
        second = second - step[:, 0] * moved[1]
        residual = columns * backward(first, second)
        energy_before = energy
        energy = _norms(residual).square()
        if iteration % check_every == 0 and bool((energy <= enough).all()):
            break
        direction = residual + energy / energy_before.clamp(min=_LEAST) * direction
    return columns * solution


def _norms(tensors: Tensor) -> Tensor:
    """Compute the norm of each record's tensor, (n, 1, 1, 1)."""
    return tensors.flatten(1).norm(dim=1)[:, None, None, None]
