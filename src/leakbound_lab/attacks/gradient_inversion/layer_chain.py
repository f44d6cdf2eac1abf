"""Layers of a network from the logits down, as far as equations lead from gradients to inputs.

A network is traced by what its layers do to one image of noise. A layer follows another one where its input
is, value by value, a known function of the other's output, however the network's code calls them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leakbound_lab.models.layers import whole

INSIDE = 1e-12
"""Distance that activations keep from the ends of their range."""

_SAME = 1e-5  # relative difference up to which a layer's input is an activation of the output below


class Activation(NamedTuple):
    """Elementwise function between layers.

    Attributes:
        function: The function.
        inverse: Its inverse, or None where it has none.
        slope: Its slope as a function of its value.
    """

    function: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor] | None
    slope: Callable[[Tensor], Tensor]


_ACTIVATIONS = (
    Activation(lambda x: x, lambda a: a, torch.ones_like),
    Activation(
        torch.sigmoid, lambda a: a.clamp(INSIDE, 1 - INSIDE).logit(), lambda a: (a * (1 - a)).clamp(min=0)
    ),
    Activation(
        torch.tanh, lambda a: a.clamp(INSIDE - 1, 1 - INSIDE).atanh(), lambda a: (1 - a * a).clamp(min=0)
    ),
    Activation(F.relu, None, lambda a: (a > 0).to(a.dtype)),
)


@dataclass(frozen=True)
class Link:
    """Layer of a chain.

    Attributes:
        name: Its name.
        layer: The layer.
        output_shape: Shape of its output for one record.
        input_shape: Shape of its input for one record.
        activation: Function of the output below that its input is, reshaped, or None below the last link of
            the chain.
    """

    name: str
    layer: nn.Linear | nn.Conv2d
    output_shape: tuple[int, ...]
    input_shape: tuple[int, ...]
    activation: Activation | None


class Called(NamedTuple):
    """Layer with parameters that a network called.

    Attributes:
        name: Its name.
        layer: The layer.
        inputs: Its inputs, or its output if it has none.
        output: Its output for them.
    """

    name: str
    layer: nn.Module
    inputs: Tensor
    output: Tensor


def calls_of(model: nn.Module, image_shape: tuple[int, int, int]) -> tuple[Tensor, list[Called]]:
    """Run a network on an image of normal noise, and list the layers with parameters that it calls.

    Args:
        model: The network.
        image_shape: (colors, height, width).

    Returns:
        The image, (1, ...), and the calls in their order, or none if the last layer does not make the logits
        or a layer is called twice.
    """
    calls: list[Called] = []
    handles = [
        module.register_forward_hook(
            lambda layer, inputs, output, name=name: calls.append(
                Called(name, layer, (*inputs, output)[0], output)
            )
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
    if (
        not calls
        or not torch.equal(calls[-1].output, logits)
        or len({call.layer for call in calls}) < len(calls)
    ):
        return probe, []
    return probe, calls


def chain_of(model: nn.Module, image_shape: tuple[int, int, int]) -> tuple[list[Link], bool]:
    """Trace a network from the logits down as far as equations lead.

    The last layer is linear with a bias, whose gradient is that of the logits. Below it any linear layer is
    passed, and a convolution below an invertible activation: its output has to be known.

    Args:
        model: The network, in evaluation mode.
        image_shape: (colors, height, width).

    Returns:
        Layers whose inputs can be found, from the logits down, and whether the input of the last one is the
        image.

    Example:
        >>> layers = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Sigmoid(), nn.Linear(3, 2))
        >>> chain, complete = chain_of(layers, (1, 2, 2))
        >>> [link.name for link in chain], complete
        (['3', '1'], True)
    """
    image, calls = calls_of(model, image_shape)
    links: list[Link] = []
    for layer, below in zip(reversed(calls), [*reversed(calls[:-1]), None], strict=False):
        if not _follows(layer, links):
            return links[:-1] + [replace(lowest, activation=None) for lowest in links[-1:]], False
        activation = None if below is None else _activation(below.output, layer.inputs)
        shapes = tuple(layer.output.shape[1:]), tuple(layer.inputs.shape[1:])
        links.append(Link(layer.name, layer.layer, *shapes, activation))  # type: ignore[arg-type]
        if activation is None:
            return links, below is None and equal(image, layer.inputs)
    return links, False


def _follows(called: Called, links: list[Link]) -> bool:
    """Return whether the input of a layer can be found, given the layers above it."""
    if not passable(called.layer, called.inputs):
        return False
    if not links:
        return isinstance(called.layer, nn.Linear) and called.layer.bias is not None
    above = links[-1].activation
    return isinstance(called.layer, nn.Linear) or (above is not None and above.inverse is not None)


def passable(layer: nn.Module, inputs: Tensor) -> TypeGuard[nn.Linear | nn.Conv2d]:
    """Return whether a layer's input can be sought."""
    if not whole(layer):
        return False
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return isinstance(layer, nn.Linear) and inputs.ndim == 2


def _activation(source: Tensor, inputs: Tensor) -> Activation | None:
    """Find the function that makes a layer's input from the output below, None if it is no known one."""
    return next(
        (activation for activation in _ACTIVATIONS if equal(activation.function(source), inputs)), None
    )


def equal(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors have the same values, up to rounding and their shape."""
    return first.numel() == second.numel() and torch.allclose(
        first.flatten(), second.flatten(), rtol=_SAME, atol=_SAME
    )
