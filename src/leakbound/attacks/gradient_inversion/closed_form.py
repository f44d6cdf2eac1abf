"""Closed-form recovery of a single record from its gradient, layer by layer from the logits down.

The gradient of the logits is that of the last bias. A layer's input follows from the gradient of its weights,
which is linear in it, and from its output, which the layer above gave. So where activations can be inverted,
the record that a gradient was computed on is found exactly, noise included, without a prior, a search or a
pixel range. Records of several networks of one architecture are solved for at once, each by the weights of
its own network.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

from leakbound.attacks.gradient_inversion.gradient_matching import problems_at_once
from leakbound.attacks.gradient_inversion.layer_chain import INSIDE, Activation, Link, chain_of
from leakbound.attacks.gradient_inversion.searches import Part, in_parts
from leakbound.models import memory
from leakbound.models.layers import windows
from leakbound.training import stack

_ITERATIONS = 2000  # conjugate-gradient steps for a convolution, of which most need a few hundred
_TOLERANCE = 1e-9  # of the normal equations' residual, below what float32 gradients hold
_LEAST = 1e-300  # in place of a denominator of 0


@dataclass(frozen=True)
class Solution:
    """Lowest inputs that equations led to.

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


def descend(
    model: nn.Module, gradients: Mapping[str, Tensor], image_shape: tuple[int, int, int]
) -> Solution | None:
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
    weights = {name: value.detach() for name, value in model.named_parameters()}
    return Solution(chain[-1].name, *_bottom(chain, weights, gradients), complete)


def solvable(model: nn.Module, image_shape: tuple[int, int, int]) -> bool:
    """Return whether equations lead from the gradient of a single record to the image."""
    return chain_of(model, image_shape)[1]


def solved_images(
    model: nn.Module, gradients: Mapping[str, Tensor], image_shape: tuple[int, int, int]
) -> Float[Tensor, "n colors height width"]:
    """Solve for the images that gradients of single records were computed on, float32.

    Arguments are those of :func:`descend`.

    Raises:
        ValueError: If no equations lead to the images.
    """
    layers = descend(model, gradients, image_shape)
    if layers is None or not layers.complete:
        raise ValueError(f"no equations lead from the gradients of {type(model).__name__} to the images")
    return layers.inputs.view(-1, *image_shape).float()


@dataclass(frozen=True)
class Solving:
    """Search of an attacker for the images that gradients of single records were computed on, by equations.

    Attributes:
        model: Network that the gradients come from.
        gradients: Parameter name to gradients (n, ...).
        image_shape: (colors, height, width).
    """

    model: nn.Module
    gradients: Mapping[str, Tensor]
    image_shape: tuple[int, int, int]

    @property
    def kind(self) -> Hashable:
        """One kind, as all searches go together."""
        return Solving

    def alone(self) -> Float[Tensor, "n colors height width"]:
        """Solve for the images as :func:`solved_images`."""
        return solved_images(self.model, self.gradients, self.image_shape)

    def together(self, others: Sequence[Solving]) -> list[Tensor]:
        """Solve for the images of this search and of others, the records of all networks in one stack.

        They are solved one search after another where equations do not lead as far down each network as
        another.
        """
        searches = [self, *others]
        models = list(dict.fromkeys(search.model for search in searches))
        chains = [chain_of(model, self.image_shape) for model in models]
        traces = {(complete, *((link.name, link.activation) for link in chain)) for chain, complete in chains}
        chain, complete = chains[0]
        if len(traces) > 1 or not complete:
            return [search.alone() for search in searches]
        counts = [len(search.gradients[f"{chain[0].name}.bias"]) for search in searches]
        gradients = {
            name: torch.cat([search.gradients[name] for search in searches]) for name in self.gradients
        }
        device = next(self.model.parameters()).device
        weights = {name: value.detach() for name, value in stack.stacked(models, device).items()}
        slots = torch.tensor(
            np.repeat([models.index(search.model) for search in searches], counts), device=device
        )
        images = slots.new_empty(len(slots), *self.image_shape, dtype=torch.float32)

        def solve(part: Part) -> None:
            """Solve for some records, whichever networks they come from."""
            (rows,) = part.rows
            weights_of_rows = {name: value[slots[rows]] for name, value in weights.items()}
            gradients_of_rows = {name: tensor[rows] for name, tensor in gradients.items()}
            inputs, _ = _bottom(chain, weights_of_rows, gradients_of_rows)
            part.put(inputs.view(-1, *self.image_shape).float(), [images])

        in_parts([len(slots)], problems_at_once(self.model, self.image_shape, device), device, solve)
        return list(images.split(counts))


class _Outputs(NamedTuple):
    """Known values of an invertible activation of a layer's output."""

    activation: Activation
    values: Tensor


def _bottom(
    chain: Sequence[Link], weights: Mapping[str, Tensor], gradients: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Find the inputs of the lowest layer of a chain, and slopes of the loss by its outputs, float64.

    Args:
        chain: Layers from the logits down.
        weights: Parameter name to its values in one network (...), or to those behind each record (n, ...).
        gradients: Parameter name to gradients (n, ...).
    """
    gradients = {name: tensor.double() for name, tensor in gradients.items()}
    weights = {name: tensor.double() for name, tensor in weights.items()}
    slopes = gradients[f"{chain[0].name}.bias"]
    outputs = None
    for position, link in enumerate(chain):
        gradient = gradients[f"{link.name}.weight"]
        weight = weights[f"{link.name}.weight"]
        if isinstance(link.layer, nn.Linear):
            squares = slopes.square().sum(1, keepdim=True)
            squares = squares.clamp(min=torch.finfo(squares.dtype).tiny)
            inputs = torch.einsum("no,noi->ni", slopes, gradient) / squares
        else:
            bias = weights.get(f"{link.name}.bias")
            inputs = _deconvolved(link, weight, bias, gradient, slopes, cast(_Outputs, outputs))
        if link.activation is not None:
            values = inputs.reshape(-1, *chain[position + 1].output_shape)
            slopes = _pulled(link, weight, slopes).reshape(values.shape) * link.activation.slope(values)
            outputs = _Outputs(link.activation, values) if link.activation.inverse is not None else None
    return inputs, slopes


def _pulled(link: Link, weight: Tensor, slopes: Tensor) -> Tensor:
    """Compute slopes of the loss by a layer's inputs from those by its outputs."""
    if isinstance(link.layer, nn.Linear):
        return slopes @ weight if weight.ndim == 2 else torch.bmm(slopes[:, None], weight)[:, 0]
    layer: Any = link.layer
    if weight.ndim == 4:
        shape = (len(slopes), *link.input_shape)
        return conv2d_input(shape, weight, slopes, layer.stride, layer.padding, layer.dilation)
    patches = weight.flatten(2).mT @ slopes.flatten(2)
    geometry = (link.input_shape[1:], layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    return F.fold(patches, *geometry)


def _deconvolved(
    link: Link, weight: Tensor, bias: Tensor | None, gradient: Tensor, slopes: Tensor, outputs: _Outputs
) -> Tensor:
    """Solve for the input of a convolution by least squares, with conjugate gradients on all records at once.

    The equations are weight · (W ∗ a) = weight · (output − bias), and Σ over positions of slope ⊗ patch(a) =
    gradient. Both are scaled to like size, and the unknowns so that each column of the system has norm 1.
    """
    layer: Any = link.layer
    shift = 0.0 if bias is None else bias[..., None, None]
    geometry = (link.input_shape[1:], layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    before = cast(Callable[[Tensor], Tensor], outputs.activation.inverse)(outputs.values)
    held = outputs.activation.slope(outputs.values)
    held = (held / _norms(held).clamp(min=INSIDE) * held[0].numel() ** 0.5).flatten(2)
    factor = slopes.shape[1] ** 0.5 / _norms(slopes).clamp(min=_LEAST)
    flat, taps = (factor * slopes).flatten(2), weight.flatten(-3)

    def forward(a: Tensor) -> tuple[Tensor, Tensor]:
        """Compute both sides of the system for inputs, from one set of patches."""
        patches = windows(a, layer)
        return held * (taps @ patches), flat @ patches.transpose(1, 2)

    def backward(first: Tensor, second: Tensor) -> Tensor:
        """Apply the transpose of ``forward``."""
        return F.fold(taps.mT @ (held * first) + second.transpose(1, 2) @ flat, *geometry)

    squares = taps.mT.square() @ held.square() + flat.square().sum(1, keepdim=True)
    columns = F.fold(squares, *geometry).clamp(min=INSIDE).rsqrt()
    first, second = held * (before - shift).flatten(2), factor[:, 0] * gradient.flatten(2)
    solution = torch.zeros_like(columns)
    residual = columns * backward(first, second)
    direction, energy = residual, _norms(residual).square()
    enough = _TOLERANCE**2 * energy
    check_every = memory.CHECK_EVERY.on(slopes.device)
    for iteration in range(1, _ITERATIONS + 1):
        moved = forward(columns * direction)
        step = energy / (_norms(moved[0]).square() + _norms(moved[1]).square()).clamp(min=_LEAST)
        solution = solution + step * direction
        first, second = first - step[:, 0] * moved[0], second - step[:, 0] * moved[1]
        residual = columns * backward(first, second)
        energy_before, energy = energy, _norms(residual).square()
        if iteration % check_every == 0 and bool((energy <= enough).all()):
            break
        direction = residual + energy / energy_before.clamp(min=_LEAST) * direction
    return columns * solution


def _norms(tensors: Tensor) -> Tensor:
    """Compute the norm of each record's tensor, (n, 1, 1, 1)."""
    return tensors.flatten(1).norm(dim=1)[:, None, None, None]
