"""Initial weights of any network, all drawn from one generator."""

import math

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

_NORMS = (nn.GroupNorm, nn.LayerNorm, _NormBase)


@torch.no_grad()
def initialize(model: nn.Module, generator: torch.Generator) -> None:
    """Draw every parameter of ``model`` in place. The global generator is not used.

    Linear and convolutional layers get torch's defaults: weights and biases uniform in ±1/√fan_in (He et al.
    2015 with a = √5). Normalisation layers get weight 1 and bias 0. A model with a method
    ``initialize(generator)`` draws its weights itself.

    Args:
        model: Network. Equal networks and equal generators give equal weights.
        generator: Draws the weights, on their device. Weights drawn on the CPU are the same on every machine.

    Raises:
        TypeError: If a layer of another kind has parameters and the model has no method ``initialize``.
    """
    draws_itself = getattr(model, "initialize", None)
    if callable(draws_itself):
        draws_itself(generator)
        return
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear | _ConvNd):
            _draw_uniform(layer, generator)
        elif isinstance(layer, _NORMS):
            if layer.weight is not None:
                layer.weight.fill_(1.0)
            if layer.bias is not None:
                layer.bias.zero_()
        elif next(layer.parameters(recurse=False), None) is not None:
            raise TypeError(
                f"{type(model).__name__}.{name or '(itself)'}: no rule for the parameters of a {type(layer).__name__}. "
                "Give the model a method initialize(generator) that draws all its parameters."
            )


def _draw_uniform(layer: nn.Linear | _ConvNd, generator: torch.Generator) -> None:
    """Draw weights, then biases, uniformly in ±1/√fan_in."""
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    if layer.bias is not None:
        bound = 1 / math.sqrt(layer.weight[0].numel())
        layer.bias.uniform_(-bound, bound, generator=generator)
