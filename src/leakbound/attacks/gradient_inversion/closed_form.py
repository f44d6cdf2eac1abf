"""Closed-form recovery of a single record from its gradient, layer by layer from the logits down.

The gradient of the logits is that of the last bias. A layer's input follows from the gradient of its weights, which is
linear in it, and from its output, which the layer above gave. So where activations can be inverted, the record that a
gradient was computed on is found exactly, noise and all: no prior, no search and no pixel range enters. Records of
several networks of one architecture are solved for at once, each by the weights of its own network.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeGuard, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

from leakbound.attacks.gradient_inversion.gradient_matching import problems_at_once
from leakbound.attacks.gradient_inversion.searches import Part, in_parts
from leakbound.training import memory, stack
from leakbound.training.factors import windows

_ITERATIONS = 2000  # conjugate-gradient steps for a convolution; most need a few hundred
_TOLERANCE = 1e-9  # of the normal equations' residual, below what float32 gradients hold
_INSIDE = 1e-12  # distance that activations keep from the ends of their range
_LEAST = 1e-300  # in place of a denominator of 0
_SAME = 1e-5  # relative difference up to which a layer's input is an activation of the output below


class _Activation(NamedTuple):
    """Elementwise function, its inverse (None: it has none), and its slope by its value."""

    function: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor] | None
    slope: Callable[[Tensor], Tensor]


_ACTIVATIONS = (
    _Activation(lambda x: x, lambda a: a, torch.ones_like),
    _Activation(torch.sigmoid, lambda a: a.clamp(_INSIDE, 1 - _INSIDE).logit(), lambda a: (a * (1 - a)).clamp(min=0)),
    _Activation(torch.tanh, lambda a: a.clamp(_INSIDE - 1, 1 - _INSIDE).atanh(), lambda a: (1 - a * a).clamp(min=0)),
    _Activation(F.relu, None, lambda a: (a > 0).to(a.dtype)),
)


@dataclass(frozen=True)
class _Link:
    """Layer of a chain.

    Attributes:
        name: Its name.
        layer: The layer.
        output_shape: Shape of its output for one record.
        input_shape: Shape of its input for one record.
        activation: Function of the layer below that its input is, reshaped; None below the last link of the chain.
    """

    name: str
    layer: nn.Linear | nn.Conv2d
    output_shape: tuple[int, ...]
    input_shape: tuple[int, ...]
    activation: _Activation | None


@dataclass(frozen=True)
class Descent:
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


def descend(model: nn.Module, gradients: Mapping[str, Tensor], image_shape: tuple[int, int, int]) -> Descent | None:
    """Find the inputs of a network's layers from gradients of single records, as far down as equations lead.

    Linear layers and convolutions are passed where their input is an invertible activation of the layer below; a ReLU
    is passed above a linear layer, whose gradient alone tells its input. Pooling, normalisation and branches end the
    way. Convolutions are solved by least squares over both kinds of equations, outputs weighted by how well float32
    holds them: of a saturated activation the output tells little.

    Args:
        model: Network that the gradients come from, its last layer linear with a bias.
        gradients: Parameter name to gradients of the cross-entropy (n, ...), of one record each.
        image_shape: (colors, height, width).

    Returns:
        The lowest inputs that were reached; None where the network has no such last layer.

    Source:
        Zhu and Blaschko 2021, "R-GAP: Recursive gradient attack on privacy", with weighted least squares.
    """
    chain, complete = chain_of(model, image_shape)
    if not chain:
        return None
    weights = {name: value.detach() for name, value in model.named_parameters()}
    return Descent(chain[-1].name, *_bottom(chain, weights, gradients), complete)


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
    found = descend(model, gradients, image_shape)
    if found is None or not found.complete:
        raise ValueError(f"no equations lead from the gradients of {type(model).__name__} to the images")
    return found.inputs.view(-1, *image_shape).float()


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

        They are solved one search after another where equations do not lead as far down each network as another.
        """
        searches = [self, *others]
        models = list(dict.fromkeys(one.model for one in searches))
        chains = [chain_of(model, self.image_shape) for model in models]
        ways = {(complete, *((link.name, link.activation) for link in chain)) for chain, complete in chains}
        chain, complete = chains[0]
        if len(ways) > 1 or not complete:
            return [one.alone() for one in searches]
        counts = [len(one.gradients[f"{chain[0].name}.bias"]) for one in searches]
        gradients = {name: torch.cat([one.gradients[name] for one in searches]) for name in self.gradients}
        device = next(self.model.parameters()).device
        weights = {name: value.detach() for name, value in stack.stacked(models, device).items()}
        slots = torch.tensor(np.repeat([models.index(one.model) for one in searches], counts), device=device)
        found = slots.new_empty(len(slots), *self.image_shape, dtype=torch.float32)

        def solve(part: Part) -> None:
            """Records of some rows, whichever networks they come from."""
            (rows,) = part.rows
            own = {name: value[slots[rows]] for name, value in weights.items()}
            inputs, _ = _bottom(chain, own, {name: tensor[rows] for name, tensor in gradients.items()})
            part.put(inputs.view(-1, *self.image_shape).float(), [found])

        in_parts([len(slots)], problems_at_once(self.model, self.image_shape, device), device, solve)
        return list(found.split(counts))


class _Outputs(NamedTuple):
    """Known values of an invertible activation of a layer's output."""

    activation: _Activation
    values: Tensor


class Called(NamedTuple):
    """Layer with parameters that a network called.

    Attributes:
        name: Its name.
        layer: The layer.
        inputs: What it was given.
        output: What it made of it.
    """

    name: str
    layer: nn.Module
    inputs: Tensor
    output: Tensor


def calls_of(model: nn.Module, image_shape: tuple[int, int, int]) -> tuple[Tensor, list[Called]]:
    """An image of normal noise, and the layers with parameters that a network calls on it.

    Args:
        model: The network.
        image_shape: (colors, height, width).

    Returns:
        The image, (1, ...), and the calls in their order; none of a network whose last layer does not make the logits,
        or that calls a layer twice.
    """
    calls: list[Called] = []
    handles = [
        module.register_forward_hook(
            lambda layer, inputs, output, name=name: calls.append(Called(name, layer, inputs[0], output))
        )
        for name, module in model.named_modules()
        if next(module.parameters(recurse=False), None) is not None
    ]
    parameter = next(model.parameters())
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(1, *image_shape, generator=generator).to(parameter.device, parameter.dtype)
    try:
        with torch.no_grad():
            logits = model(probe)
    finally:
        for handle in handles:
            handle.remove()
    if not calls or not torch.equal(calls[-1].output, logits) or len({one.layer for one in calls}) < len(calls):
        return probe, []
    return probe, calls


def chain_of(model: nn.Module, image_shape: tuple[int, int, int]) -> tuple[list[_Link], bool]:
    """Layers from the logits down as far as each one's input is an activation of the next; whether images are below."""
    probe, calls = calls_of(model, image_shape)
    links: list[_Link] = []
    inverse: Callable[[Tensor], Tensor] | None = None  # of the activation of the layer's output
    for position in range(len(calls) - 1, -1, -1):
        name, layer, inputs, output = calls[position]
        if not passable(layer, inputs) or (isinstance(layer, nn.Conv2d) and inverse is None):
            break
        if not links and (isinstance(layer, nn.Conv2d) or layer.bias is None):
            break
        source = calls[position - 1].output if position else probe
        activation = _activation(source, inputs) if position else None
        links.append(_Link(name, layer, tuple(output.shape[1:]), tuple(inputs.shape[1:]), activation))
        if activation is None:
            return links, position == 0 and equal(source, inputs)
        inverse = activation.inverse
    if links:  # the layer below is not passed
        links[-1] = replace(links[-1], activation=None)
    return links, False


def passable(layer: nn.Module, inputs: Tensor) -> TypeGuard[nn.Linear | nn.Conv2d]:
    """True if a layer's input can be sought."""
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return isinstance(layer, nn.Linear) and inputs.ndim == 2


def _activation(source: Tensor, inputs: Tensor) -> _Activation | None:
    """Function that makes a layer's input from the output below; None if it is none of those known."""
    return next((one for one in _ACTIVATIONS if equal(one.function(source), inputs)), None)


def equal(first: Tensor, second: Tensor) -> bool:
    """True if, up to rounding, two tensors have the same values up to their shape."""
    return first.numel() == second.numel() and torch.allclose(first.flatten(), second.flatten(), rtol=_SAME, atol=_SAME)


def _bottom(
    chain: Sequence[_Link], weights: Mapping[str, Tensor], gradients: Mapping[str, Tensor]
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
            inputs = torch.einsum("no,noi->ni", slopes, gradient) / squares.clamp(min=torch.finfo(squares.dtype).tiny)
        else:
            bias = known.get(f"{link.name}.bias")
            inputs = _deconvolved(link, weight, bias, gradient, slopes, cast(_Outputs, outputs))
        if link.activation is not None:
            values = inputs.reshape(-1, *chain[position + 1].output_shape)
            pulled = _pulled(link, weight, slopes).reshape(values.shape)
            slopes = pulled * link.activation.slope(values)
            outputs = _Outputs(link.activation, values) if link.activation.inverse is not None else None
    return inputs, slopes


def _pulled(link: _Link, weight: Tensor, slopes: Tensor) -> Tensor:
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
    link: _Link, weight: Tensor, bias: Tensor | None, gradient: Tensor, slopes: Tensor, outputs: _Outputs
) -> Tensor:
    """Least-squares input of a convolution, by conjugate gradients on all records at once.

    Equations: weight · (W ∗ a) = weight · (output − bias), and Σ over positions of slope ⊗ patch(a) = gradient. Both
    are scaled to like size, and the unknowns so that each column of the system has norm 1.
    """
    layer = cast(nn.Conv2d, link.layer)
    stride, padding, dilation = _geometry(layer)
    shift = 0.0 if bias is None else bias[..., None, None]
    kernel, size = layer.kernel_size, link.input_shape[1:]
    before = cast(Callable[[Tensor], Tensor], outputs.activation.inverse)(outputs.values)
    held = outputs.activation.slope(outputs.values)
    held = held / _norms(held).clamp(min=_INSIDE) * held[0].numel() ** 0.5
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
    columns = F.fold(squares, size, kernel, dilation, padding, stride).clamp(min=_INSIDE).rsqrt()
    first, second = held * (before - shift).flatten(2), factor[:, 0] * gradient.flatten(2)
    found = torch.zeros_like(columns)
    residual = columns * backward(first, second)
    direction, energy = residual, _norms(residual).square()
    enough = _TOLERANCE**2 * energy
    glance = memory.CHECK_EVERY.on(slopes.device)
    for iteration in range(1, _ITERATIONS + 1):
        moved = forward(columns * direction)
        step = energy / (_norms(moved[0]).square() + _norms(moved[1]).square()).clamp(min=_LEAST)
        found = found + step * direction
        first, second = first - step[:, 0] * moved[0], second - step[:, 0] * moved[1]
        residual = columns * backward(first, second)
        before_step, energy = energy, _norms(residual).square()
        if iteration % glance == 0 and bool((energy <= enough).all()):
            break
        direction = residual + energy / before_step.clamp(min=_LEAST) * direction
    return columns * found


def _norms(tensors: Tensor) -> Tensor:
    """Norm of each record's tensor, (n, 1, 1, 1)."""
    return tensors.flatten(1).norm(dim=1)[:, None, None, None]
