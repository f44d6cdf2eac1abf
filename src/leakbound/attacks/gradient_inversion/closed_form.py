"""Closed-form recovery of a single record from its gradient, layer by layer from the logits down.

The gradient of the logits is that of the last bias. A layer's input follows from the gradient of its weights,
which is linear in it, and from its output, which the layer above gave. So where activations can be inverted,
the record that a gradient was computed on is found exactly, noise and all: no prior, no search and no pixel
range enters. Records of several networks of one architecture are solved for at once, each by the weights of
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
from leakbound.training import memory, stack
from leakbound.training.known_layers import windows

_ITERATIONS = 2000  # conjugate-gradient steps for a convolution; most need a few hundred
_TOLERANCE = 1e-9  # of the normal equations' residual, below what float32 gradients hold
_LEAST = 1e-300  # in place of a denominator of 0


@dataclass(frozen=True)
class Solution:
    """Result of the way down.

    Attributes:
        layer: Name of the lowest layer whose input is known.
        inputs: That input, float64, (n, ...): the images, if ``complete``.
        slopes: Of the loss by that layer's outputs, float64, (n, ...).
        complete: Whether the way led to the images.
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
    and branches end the way. Convolutions are solved by least squares over both kinds of equations, outputs
    weighted by how well float32 holds them: the output of a saturated activation says little.

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
    """True if equations lead from the gradient of a single record to the image, of a shape (colors, height, width)."""
    return chain_of(model, image_shape)[1]


def solved_images(
    model: nn.Module, gradients: Mapping[str, Tensor], image_shape: tuple[int, int, int]
) -> Float[Tensor, "n colors height width"]:
    """Images that gradients of single records were computed on, float32; arguments are those of :func:`descend`.

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
        """All go together."""
        return Solving

    def alone(self) -> Float[Tensor, "n colors height width"]:
        """Images as by :func:`solved_images`."""
        return solved_images(self.model, self.gradients, self.image_shape)

    def together(self, others: Sequence[Solving]) -> list[Tensor]:
        """Images of this search and of others, the records of all networks in one stack.

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
            """Records of some rows, whichever networks they come from."""
            (rows,) = part.rows
            own = {name: value[slots[rows]] for name, value in weights.items()}
            inputs, _ = _bottom(chain, own, {name: tensor[rows] for name, tensor in gradients.items()})
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
    """Inputs of the lowest layer of a chain, and slopes of the loss by its outputs, float64, (n, ...).

    Args:
        chain: Layers from the logits down.
        weights: Parameter name to its values in one network (...), or to those behind each record (n, ...).
        gradients: Parameter name to gradients (n, ...).
    """
    exact, known = ({name: tensor.double() for name, tensor in one.items()} for one in (gradients, weights))
    slopes, outputs = exact[f"{chain[0].name}.bias"], None
    for position, link in enumerate(chain):
        gradient, weight = (one[f"{link.name}.weight"] for one in (exact, known))
        if isinstance(link.layer, nn.Linear):
            squares = slopes.square().sum(1, keepdim=True)
            inputs = torch.einsum("no,noi->ni", slopes, gradient) / squares.clamp(
                min=torch.finfo(squares.dtype).tiny
            )
        else:
            bias = known.get(f"{link.name}.bias")
            inputs = _deconvolved(link, weight, bias, gradient, slopes, cast(_Outputs, outputs))
        if link.activation is not None:
            values = inputs.reshape(-1, *chain[position + 1].output_shape)
            pulled = _pulled(link, weight, slopes).reshape(values.shape)
            slopes = pulled * link.activation.slope(values)
            outputs = _Outputs(link.activation, values) if link.activation.inverse is not None else None
    return inputs, slopes


def _pulled(link: Link, weight: Tensor, slopes: Tensor) -> Tensor:
    """Slopes of the loss by a layer's inputs from those by its outputs."""
    if isinstance(link.layer, nn.Linear):
        return slopes @ weight if weight.ndim == 2 else torch.bmm(slopes[:, None], weight)[:, 0]
    stride, padding, dilation = _geometry(link.layer)
    if weight.ndim == 4:
        return conv2d_input((len(slopes), *link.input_shape), weight, slopes, stride, padding, dilation)
    patches = weight.flatten(2).mT @ slopes.flatten(2)
    return F.fold(patches, link.input_shape[1:], link.layer.kernel_size, dilation, padding, stride)


def _geometry(layer: nn.Conv2d) -> tuple[Any, Any, Any]:
    """Stride, padding and dilation."""
    return layer.stride, layer.padding, layer.dilation


def _deconvolved(
    link: Link, weight: Tensor, bias: Tensor | None, gradient: Tensor, slopes: Tensor, outputs: _Outputs
) -> Tensor:
    """Least-squares input of a convolution, by conjugate gradients on all records at once.

    Equations: weight · (W ∗ a) = weight · (output − bias), and Σ over positions of slope ⊗ patch(a) =
    gradient. Both are scaled to like size, and the unknowns so that each column of the system has norm 1.
    """
    layer = cast(nn.Conv2d, link.layer)
    stride, padding, dilation = _geometry(layer)
    shift = 0.0 if bias is None else bias[..., None, None]
    kernel, size = layer.kernel_size, link.input_shape[1:]
    before = cast(Callable[[Tensor], Tensor], outputs.activation.inverse)(outputs.values)
    held = outputs.activation.slope(outputs.values)
    held = held / _norms(held).clamp(min=INSIDE) * held[0].numel() ** 0.5
    factor = slopes.shape[1] ** 0.5 / _norms(slopes).clamp(min=_LEAST)
    held, flat, taps = held.flatten(2), (factor * slopes).flatten(2), weight.flatten(-3)

    def forward(a: Tensor) -> tuple[Tensor, Tensor]:
        """Both sides of the system for inputs, from one set of patches."""
        patches = windows(a, layer)
        return held * (taps @ patches), flat @ patches.transpose(1, 2)

    def backward(first: Tensor, second: Tensor) -> Tensor:
        """Transpose of ``forward``."""
        patches = taps.mT @ (held * first) + second.transpose(1, 2) @ flat
        return F.fold(patches, size, kernel, dilation, padding, stride)

    squares = taps.mT.square() @ held.square() + flat.square().sum(1, keepdim=True)
    columns = F.fold(squares, size, kernel, dilation, padding, stride).clamp(min=INSIDE).rsqrt()
    first, second = held * (before - shift).flatten(2), factor[:, 0] * gradient.flatten(2)
    found = torch.zeros_like(columns)
    residual = columns * backward(first, second)
    direction, energy = residual, _norms(residual).square()
    enough = _TOLERANCE**2 * energy
    check_every = memory.CHECK_EVERY.on(slopes.device)
    for iteration in range(1, _ITERATIONS + 1):
        moved = forward(columns * direction)
        step = energy / (_norms(moved[0]).square() + _norms(moved[1]).square()).clamp(min=_LEAST)
        found = found + step * direction
        first, second = first - step[:, 0] * moved[0], second - step[:, 0] * moved[1]
        residual = columns * backward(first, second)
        before_step, energy = energy, _norms(residual).square()
        if iteration % check_every == 0 and bool((energy <= enough).all()):
            break
        direction = residual + energy / before_step.clamp(min=_LEAST) * direction
    return columns * found


def _norms(tensors: Tensor) -> Tensor:
    """Norm of each record's tensor, (n, 1, 1, 1)."""
    return tensors.flatten(1).norm(dim=1)[:, None, None, None]
